"""agentplane: two programs have that name, and neither has a step that a client could take."""

from peer import Peer


class Agentplane(Peer):
    name, title = "agentplane", "agentplane"
    version = staticmethod(lambda: "PyPI 0.2.0, npm 0.6.25")
    kills = {}
    sentence = ("Two unrelated programs have this name, and neither has a durable step to call. The one on PyPI starts other agents' command "
                "lines and writes what they did into a file of lines; the one on npm keeps tasks of coding agents in a Git repository.")
