"""Reads Rust and C files as text: comments, strings, functions and types, for scripts/house.

This is a scanner, not a parser. It separates comments and literals from code and finds items by their keywords; macros
are not expanded.
"""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

TOKEN = re.compile(r"""
    (?P<comment>//[^\n]*|/\*)
  | \b(?:b|c)?r(?P<hashes>\#*)".*?"(?P=hashes)
  | (?:\b[bc])?"(?:[^"\\]|\\.)*"
  | (?:\bb)?'(?:\\(?:u\{[^}]*\}|x..|.)|[^'\\\n])'
""", re.X | re.S)
COMMENT_MARK = re.compile(r"/\*|\*/")
BRACKET = re.compile(r"[()\[\]{}]")
ANGLE_OR_PARAMETERS = re.compile(r"->|[<>(]")
BRACKET_OR_END = re.compile(r"[(\[{};]|\bwhere\b")
CFG_TEST = re.compile(r"#\[cfg\((?:test|all\(test\b[^\]]*)\)\]")
VISIBILITY = r"(?:pub(?:\([^)]*\))?\s+)?"
MODULE_FILE = re.compile(CFG_TEST.pattern + r"\s*" + VISIBILITY + r"mod\s+(\w+);")
TYPE = re.compile(r"^( *)" + VISIBILITY + r"(?:unsafe\s+)?(struct|enum|trait|union|type)\s+(\w+)", re.M)
FUNCTION = re.compile(r"\bfn\s+(\w+)")


@dataclass
class Place:
    """A position that a figure counts; `name` distinguishes places in one file."""

    path: str
    line: int = 0
    text: str = ""
    name: str = ""

    def __str__(self):
        return f"{self.path}{f':{self.line}' if self.line else ''}{'  ' if self.text else ''}{self.text}"

    def matches(self, pattern):
        """Whether a pattern `path` or `path:name` covers the place; `*` also matches slashes."""
        return fnmatchcase(self.path, pattern) or bool(self.name) and fnmatchcase(f"{self.path}:{self.name}", pattern)


@dataclass
class Function:
    """The head and the size of a function."""

    name: str
    place: Place
    offset: int
    parameters: list
    returned: str
    lines: int


def matching(code, start):
    """The index after the bracket that closes the bracket at `start`."""
    depth = 0
    for bracket in BRACKET.finditer(code, start):
        depth += 1 if bracket.group() in "([{" else -1
        if depth == 0:
            return bracket.end()
    return len(code)


def split_list(text):
    """The parts of `text` between the commas outside brackets."""
    parts, depth, start = [], 0, 0
    for mark in re.finditer(r"->|[()\[\]{}<>,]", text):
        if mark.group() == "," and depth == 0:
            parts.append(text[start:mark.start()])
            start = mark.end()
        elif len(mark.group()) == 1:
            depth += (mark.group() in "([{<") - (mark.group() in ")]}>")
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]


def block_comment_end(text, start):
    """The index after the block comment at `start`; block comments nest."""
    depth = 0
    for mark in COMMENT_MARK.finditer(text, start):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(text)


def scan(text):
    """The code of `text`, its comments and its strings; the last two as pairs of offset and text.

    In the code, spaces replace comments and quotation marks replace literals, so offsets and line numbers are
    unchanged.
    """
    code, comments, strings, at = [], [], [], 0
    while token := TOKEN.search(text, at):
        code.append(text[at:token.start()])
        at = block_comment_end(text, token.start()) if token.group() == "/*" else token.end()
        literal = text[token.start():at]
        (comments if token.group("comment") else strings).append((token.start(), literal))
        code.append(re.sub(r"[^\n]", " " if token.group("comment") else '"', literal))
    return "".join([*code, text[at:]]), comments, strings


def head_end(code, start):
    """The offset of the `{`, `;`, `}` or `where` that ends the head of an item."""
    while (mark := BRACKET_OR_END.search(code, start)) and mark.group() in "([":
        start = matching(code, mark.start())
    return mark.start() if mark else len(code)


def item_end(code, start):
    """The index after the item whose head begins at `start`."""
    end = head_end(code, start)
    if code.startswith("where", end):
        end = head_end(code, end + len("where"))
    return matching(code, end) if code.startswith("{", end) else min(end + 1, len(code))


def parameter_list(code, start):
    """The offset of the `(` after a function's name and its generic parameters."""
    angles = 0
    for mark in ANGLE_OR_PARAMETERS.finditer(code, start):
        if mark.group() == "(" and angles == 0:
            return mark.start()
        angles += (mark.group() == "<") - (mark.group() == ">")
    return len(code)


class Source:
    """One Rust or C file."""

    def __init__(self, path, text):
        self.path, self.text = path, text
        self.code, self.comments, self.strings = scan(text)
        self.is_rust = path.endswith(".rs")
        self.is_production = self.is_rust and "src" in path.split("/")[:-1] and "tests" not in path

    def line(self, offset):
        return self.text.count("\n", 0, offset) + 1

    def place(self, offset, text="", name=""):
        return Place(self.path, self.line(offset), text, name)

    @cached_property
    def production(self):
        """The code without test items; spaces replace them."""
        code = self.code
        while test := CFG_TEST.search(code):
            end = item_end(code, test.end())
            code = code[:test.start()] + re.sub(r"[^\n]", " ", code[test.start():end]) + code[end:]
        return code

    @cached_property
    def functions(self):
        """All functions of the file, test functions included."""
        return [self._function(head) for head in FUNCTION.finditer(self.code)]

    def _function(self, head):
        code, name = self.code, head.group(1)
        start = parameter_list(code, head.end())
        behind = matching(code, start)
        returned = code[behind:head_end(code, behind)].strip()
        lines = code.count("\n", head.start(), item_end(code, behind)) + 1
        place = self.place(head.start(), f"{name} {returned}".rstrip(), name)
        return Function(name, place, head.start(), split_list(code[start + 1:behind - 1]), returned, lines)

    @property
    def production_functions(self):
        return [function for function in self.functions if self.production[function.offset] == "f"]

    @property
    def types(self):
        """The name and the place of each type that production code defines; associated types are left out."""
        for found in TYPE.finditer(self.production):
            indent, keyword, name = found.groups()
            if keyword != "type" or not indent:
                yield name, self.place(found.start(2), f"{keyword} {name}", name)

    @property
    def test_modules(self):
        """The paths, without `.rs`, of the modules that the file declares for tests only."""
        folder, _, stem = self.path[:-3].rpartition("/")
        folder = folder if stem in ("mod", "lib", "main") else f"{folder}/{stem}"
        return [f"{folder}/{module}" for module in MODULE_FILE.findall(self.code)]

    def doc_paragraphs(self):
        """The line and the text of each paragraph of the doc comments; a heading belongs to the text below it."""
        paragraphs, previous = [], -1
        for offset, comment in self.comments:
            text = comment[3:].strip()
            if not re.match(r"//[/!](?!/)", comment) or not text:
                continue
            line = self.line(offset)
            if line == previous + 1:
                paragraphs[-1] = (paragraphs[-1][0], f"{paragraphs[-1][1]} {text}")
            else:
                paragraphs.append((line, text))
            previous = line
        return paragraphs
