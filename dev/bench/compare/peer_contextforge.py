"""ContextForge: a gateway that passes calls on, and keeps no record from which a call could be told to have been done."""

from peer import Peer


class ContextForge(Peer):
    name, title = "contextforge", "ContextForge"
    pip = ["mcp-contextforge-gateway==1.0.7.post20260921"]
    version = staticmethod(lambda: "1.0.7.post20260921")
    sentence = "It passes calls on to tool servers and has no durable step."
