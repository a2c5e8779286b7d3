"""A second, independent implementation of what the gate does: the facts that policies read, and the policies themselves.

The harness asks it about every call that the real gate decides on, and compares the answers. It decides nothing else but the row
"any result endorses", for which the gate deliberately has no fact. docs/policy.md says what the facts mean.
"""

import re
import unicodedata
from dataclasses import dataclass


# ---------------------------------------------------------------- values

def text_of(leaf):
    """A leaf as text: texts as they are, numbers in their shortest form (1100.0 is 1100). Nothing else has a text."""
    if isinstance(leaf, bool) or leaf is None:
        return None
    if isinstance(leaf, (int, float)):
        return str(int(leaf)) if float(leaf).is_integer() else repr(leaf)
    return leaf


def normal(text):
    """NFC, ASCII letters small, runs of white space are one space, no http:// or https://."""
    text = unicodedata.normalize("NFC", text)
    text = "".join(c.lower() if c.isascii() else c for c in text)
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"(?<![a-z0-9+.-])https?://", "", text)


JOINERS = set("_-@/\\%=&+~#$*")      # beside one of these, a value goes on
STOPS = set(".:,?!;")                # after one of these, a value goes on only where a letter or digit follows at once


def is_word(c):
    return c.isalnum() or unicodedata.category(c) in ("Mn", "Mc", "Cf")


def stands_in(value, text):
    """Whether value stands in text as a whole: nothing on its left or right belongs to it. Both are normal."""
    start = text.find(value)
    while start >= 0:
        end = start + len(value)
        left, right, after = text[start - 1:start], text[end:end + 1], text[end + 1:end + 2]
        left_ends = not left or not (is_word(left) or left in JOINERS or left in ".:")
        right_ends = not right or not (is_word(right) or right in JOINERS or (right in STOPS and after and is_word(after)))
        if left_ends and right_ends:
            return True
        start = text.find(value, start + 1)
    return False


def is_telling(value):
    """Too short a value stands in a text by chance: at least 3 letters or digits, and 6 where all are digits."""
    signs = [c for c in value if c.isalnum()]
    return len(signs) >= (6 if all(c.isdigit() for c in signs) else 3)


DOTS = str.maketrans({"。": ".", "．": ".", "｡": ".", "․": ".", "＠": "@", "﹫": "@"})
HOST = re.compile(r"[^\W_](?:[\w-]*[^\W_])?\.[^\W\d_]{2,}|xn--|\d+\.\d+\.\d+\.\d+")
SCHEME = re.compile(r"(mailto|tel|sms|data|javascript):")


def is_address(piece):
    digits = sum(c.isdigit() for c in piece)
    return bool(HOST.search(piece) or "://" in piece or re.search(r"\S@\S", piece) or SCHEME.match(piece)
                or digits >= 9 and not re.fullmatch(r"[\d:.t/ -]*", piece))


def addresses(text):
    """The addresses in a text: each piece between white space, quotes, brackets, commas and semicolons that has a host name, an @, a
    scheme or nine digits in it, whole; and nine or more digits with separators."""
    text = unicodedata.normalize("NFKC", text.translate(DOTS))
    text = "".join(c for c in text if unicodedata.category(c) != "Cf").lower()
    text = re.sub(r"\s*[\[({]\s*(\.|dot)\s*[\])}]\s*", ".", text)
    text = re.sub(r"\s*[\[({]\s*(@|at)\s*[\])}]\s*", "@", text)
    pieces = (piece.strip(".:!?*_~-") for piece in re.split(r"[\s<>\"'`|,;(){}\[\]“”‘’«»]+", text))
    found = {piece for piece in pieces if is_address(piece)}
    for piece in sorted(found, key=len, reverse=True):
        text = text.replace(piece, "|")
    text = re.sub(r"\d{4}-\d\d-\d\d([ t]\d\d:\d\d(:\d\d)?)?", "|", text)
    return found | {m.group().strip() for m in re.finditer(r"(?<![^\W_])(?:\+|[a-z]{2})?\d(?:[ ()./-]{0,2}\d){8,}", text)}


def leaves(value, names=True):
    """All leaves of a value; null is none. In an argument the names of an object's members are leaves, too: a tool may take
    them for values."""
    if isinstance(value, dict):
        for name, item in value.items():
            if names:
                yield name
            yield from leaves(item, names)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item, names)
    elif value is not None:
        yield value


def texts_in(value):
    return [text for leaf in leaves(value) if (text := text_of(leaf)) is not None]


def at(pointer, value):
    """All that a pointer with `*` names in a result."""
    found = [value]
    for name in pointer.split("/")[1:]:
        step = []
        for item in found:
            if isinstance(item, list):
                step += item if name == "*" else []
            elif isinstance(item, dict):
                step += item.values() if name == "*" else [item[name]] if name in item else []
        found = step
    return found


# ---------------------------------------------------------------- a session, and what policies see of a call

@dataclass
class Facts:
    args: dict
    mode: str
    sends: set
    labels: set                 # of the session, before this call
    targets: set                # origins that every target has
    addresses: set              # origins that every address in the other arguments has
    amount: float | None
    foreign: list               # for people: the values without a known origin

    def differences(self, recorded):
        """Which of the facts that the gate has recorded with its decision are others here. It looks up and records only what its policies
        read. `none` is that there is nothing that could come from anywhere."""
        def origins(name):
            return ORIGINS if "none" in recorded[name] else set(recorded[name]) & ORIGINS
        names = [name for name in ("targets", "addresses") if name in recorded]
        return [name for name in names if origins(name) != getattr(self, name) & ORIGINS]


ORIGINS = {"user", "known", "record", "link"}
ALL = {"user", "directory", "known", "record", "link", "result"}       # nothing there: no constraint


class Session:
    def __init__(self, declared, directories, request):
        self.declared = declared
        self.directories = [normal(entry) for entries in directories.values() for entry in entries]
        self.request = normal(request)
        self.labels, self.records, self.links, self.results = set(), set(), set(), []

    def is_listed(self, value):
        def is_entry(entry):
            is_domain = entry.startswith("*@") and value.count("@") == 1 and value.endswith(entry[1:]) and len(value) >= len(entry)
            return value == entry or is_domain
        return any(is_entry(entry) for entry in self.directories)

    def origins(self, leaf):
        text = text_of(leaf)
        value = normal(text) if text is not None else ""
        if not value:
            return set()
        found = set()
        if is_telling(value) and stands_in(value, self.request):
            found |= {"user", "known"}
        if self.is_listed(value):
            found |= {"directory", "known"}
        if "known" in found or value in self.records:
            found.add("record")
        if "known" in found or value in self.links:
            found.add("link")
        if any(stands_in(value, result) for result in self.results):
            found.add("result")                               # only the row "any result endorses" reads this
        return found

    def common(self, values):
        found = set(ALL)
        for value in values:
            found &= self.origins(value)
        return found

    def facts(self, tool, args):
        declared = self.declared[tool]
        names = declared.get("targets", [])
        targets = [leaf for name in names for leaf in leaves(args.get(name))]
        if "targets" not in declared or (names and not targets):
            targets = [""]                                    # not declared, or none given: it has no origin
        others = {a for name, value in args.items() if name not in names for text in texts_in(value) for a in addresses(text)}
        foreign = [value for value in [*targets, *sorted(others)] if "known" not in self.origins(value)]
        return Facts(args, declared["mode"], set(declared.get("sends", [])), set(self.labels), self.common(targets), self.common(others),
                     args.get(declared.get("amount")), foreign)

    def sent(self, tool):
        """A call goes to its tool: its labels are in the session, whatever becomes of it."""
        self.labels |= set(self.declared[tool].get("reads", []))

    def took(self, tool, args, result):
        """A call has succeeded: what its result brings. What the call itself said is not vouched for by an answer that repeats it."""
        declared = self.declared[tool]
        said = {normal(text) for text in texts_in(args)}
        for pointer in declared.get("trusted", []):
            parts = (leaf for part in at(pointer, result) for leaf in leaves(part, names=False))
            self.records |= {normal(text) for leaf in parts if (text := text_of(leaf))} - said
        for pointer in declared.get("links", []):
            self.links |= {normal(a) for part in at(pointer, result) for text in texts_in(part) for a in addresses(text)}
        self.results.append(normal(" | ".join(texts_in(result))))


# ---------------------------------------------------------------- policies: the names of those that ask

WRITES = "execute_gated"


def no_gate(f):
    return set()


def every_write(f):
    return {"every-write"} if f.mode == WRITES else set()


def after_untrusted(f):
    return {"after-untrusted"} if (f.mode == WRITES or f.sends) and "untrusted" in f.labels else set()


def unless_in_request(f):
    return {"unless-in-request"} if after_untrusted(f) and "user" not in f.targets else set()


def any_result(f):
    return {"any-result"} if after_untrusted(f) and not f.targets & {"user", "result"} else set()


def flow(f):
    writes, untrusted = f.mode == WRITES, "untrusted" in f.labels
    asks = {
        "flow/undeclared": writes and not f.sends & {"egress", "publish", "money", "delete", "message", "change", "account"},
        "flow/secret": "secret" in f.labels and f.sends & {"egress", "publish", "message", "money"},
        "flow/target": untrusted and writes and f.sends & {"egress", "publish", "money", "delete"} and "known" not in f.targets,
        "flow/inside": untrusted and writes and f.sends & {"message", "change"} and "record" not in f.targets,
        "flow/address": untrusted and writes and "known" not in f.addresses and not ("message" in f.sends and "link" in f.addresses),
        "flow/fetch": untrusted and f.mode == "read_only" and "egress" in f.sends and "link" not in f.targets,
        "flow/account": untrusted and "account" in f.sends,
        "bank/amount": untrusted and f.amount is not None and f.amount >= 100,
    }
    return {name for name, matches in asks.items() if matches}
