"""Which encoding a file's bytes are in, from the bytes alone."""

import codecs
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO

from tagline.errors import SpecError

BLOCK = 1 << 20
SAMPLE = 1 << 18
"""Bytes of lines beyond ASCII that are enough to tell the legacy encodings apart."""

BOMS = (  # the longer marks first: UTF-32's begins with UTF-16's
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

KANA = re.compile(r"[ぁ-ゖァ-ヺー、。]")
# The characters that make up more than half of running Korean text, and of running Chinese text in either script.
# All of Hangul will not do: cp949 has a rare syllable for nearly every pair of bytes.
FREQUENT_HANGUL = re.compile(
    "[이다는가고하의에을지은도로기나한아사어영화보리그시너무만게자서인정라대거들스마수음일전내말주해진없연야안여우요좋면러있"
    "니으점했던네본감재미구더것를와과오장동원부성제상비조용국실생된적번간때문ㅋㅎㅠㅜ]"
)
FREQUENT_HANZI = re.compile(
    "[的一是不了在人有我他这這中大来來上个個国國到说說们們为為子和你地出道也时時年得就那要下以生会會自着去之过過家学學"
    "对對可她里裡后後小么麼心多天而能好都然没沒日于於起还還发發成事只作当當想看文无無开開手十用主行方又如前所本见見经經"
    "头頭面公同三已老从從动動两兩长長房间間服务務酒店很住太差，。！？、]"
)
# What a high byte means in running European text: a letter, or punctuation that a word processor wrote.
WESTERN = re.compile("[À-ÖØ-öø-ÿŒœŠšŽžŸ€‚„…‰‹›‘’“”•–—™¡¿«»°§£©®´·½²³ß]")
# What bytes turn into when they are read in the wrong encoding: control characters, private and impossible ones.
SENSELESS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ue000-\uf8ff\ufffd-\uffff]")
# Bytes that European text has one or two of in a row, other scripts whole runs of.
HIGH_RUN = re.compile(rb"[\x80-\xff]+")


UNREADABLE = ("idna", "punycode", "undefined")
"""Codecs of Python that are for names rather than for files."""

KEEP = "tagline-keep"


def _kept(error: UnicodeError) -> tuple[str, int]:
    """Bytes that do not fit as lone surrogates. Python's own `surrogateescape` cannot do that below 0x80 (UTF-16)."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "".join(chr(0xDC00 + byte) for byte in error.object[error.start : error.end]), error.end


codecs.register_error(KEEP, _kept)


@dataclass(frozen=True)
class Encoding:
    """A codec's name, and whether some bytes of the file do not fit it."""

    name: str
    damaged: bool = False

    @property
    def errors(self) -> str:
        """How a reader decodes: a damaged file keeps its odd bytes as lone surrogates, so that rows can be named."""
        return KEEP if self.damaged else "strict"


def named(name: str, file: IO[bytes]) -> Encoding:
    """The encoding the user named, checked against the bytes."""
    try:
        codec = codecs.lookup(name)
        io.TextIOWrapper(io.BytesIO(), name)  # refuses codecs that make no text, such as hex
    except (LookupError, ValueError) as error:
        raise _unknown(name) from error
    if codec.name in UNREADABLE:
        raise _unknown(name)
    start = file.read(BLOCK)
    file.seek(0)
    marks = tuple(mark for mark, marked in BOMS if marked == codec.name)
    if codec.name in ("utf-16", "utf-32") and not start.startswith(marks):
        name = _unmarked_utf16(start) or f"{codec.name}-le"
    return _checked(name, file)


def detected(file: IO[bytes]) -> Encoding:
    """The encoding of these bytes: a mark at the start, UTF-8 if they are, else the likeliest of the older ones."""
    start = file.read(BLOCK)
    file.seek(0)
    for mark, name in BOMS:
        if start.startswith(mark):
            return _checked(name, file)
    if name := _unmarked_utf16(start):
        return _checked(name, file)
    if _decodes(file, "utf-8"):
        return Encoding("utf-8")
    file.seek(0)
    sample = _lines_beyond_ascii(file)
    if _is_damaged_utf8(sample):
        return Encoding("utf-8", damaged=True)
    file.seek(0)
    return _checked(_legacy(sample), file)


def _unknown(name: str) -> SpecError:
    hint = 'a name such as utf-8, latin-1, cp1252, utf-16, shift_jis, euc-kr, gb18030, or "auto"'
    return SpecError(f'data.encoding: no encoding "{name}"', hint=hint)


def _checked(name: str, file: IO[bytes]) -> Encoding:
    return Encoding(name, damaged=not _decodes(file, name))


def _decodes(file: IO[bytes], name: str) -> bool:
    """Whether all bytes of a file fit an encoding."""
    decoder = codecs.getincrementaldecoder(name)("strict")
    try:
        while block := file.read(BLOCK):
            decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _unmarked_utf16(start: bytes) -> str:
    """UTF-16 without its mark: zero bytes, which no other text has, and line breaks and sense in what they make."""
    half = len(start) // 2
    even, odd = start[0::2].count(0), start[1::2].count(0)
    if odd > 0.4 * half and even < 0.05 * half:  # mostly Latin: every second byte is zero
        return "utf-16-le"
    if even > 0.4 * half and odd < 0.05 * half:
        return "utf-16-be"
    if even + odd == 0 or _makes_sense(start.replace(b"\0", b""), "utf-8"):
        return ""
    for codec in ("utf-16-le", "utf-16-be"):  # in other scripts only line breaks and spaces have zero bytes
        line_break = "\n".encode(codec)
        if any(start[at : at + 2] == line_break for at in range(0, len(start), 2)) and _makes_sense(start, codec):
            return codec
    return ""


def _makes_sense(start: bytes, codec: str) -> bool:
    """Whether the first bytes of a file decode to text without control characters."""
    try:
        return not SENSELESS.search(codecs.getincrementaldecoder(codec)("strict").decode(start))
    except UnicodeDecodeError:
        return False


def _lines_beyond_ascii(file: Iterable[bytes]) -> bytes:
    sample = bytearray()
    for line in file:
        if not line.isascii():
            sample += line[:SAMPLE]
            if len(sample) >= SAMPLE:
                break
    return bytes(sample)


def _is_damaged_utf8(sample: bytes) -> bool:
    """UTF-8 with some bytes hurt: more characters that fit than bytes that do not; others fit by chance alone."""
    text = sample.decode("utf-8", "surrogateescape")
    hurt = sum("\udc80" <= character <= "\udcff" for character in text)
    fitting = sum(character > "\x7f" for character in text) - hurt
    return fitting > 2 * hurt


def _legacy(sample: bytes) -> str:
    """The older encoding in which most of the odd characters are ones that its language really uses."""
    scored = [
        (_share(sample, "shift_jis", KANA), "shift_jis"),
        (_share(sample, "cp932", KANA), "cp932"),
        (_share(sample, "euc_jp", KANA), "euc_jp"),
        (_share(sample, "euc-kr", FREQUENT_HANGUL), "euc-kr"),
        (_share(sample, "cp949", FREQUENT_HANGUL), "cp949"),
        (_share(sample, "gb18030", FREQUENT_HANZI), "gb18030"),
        (_share(sample, "big5", FREQUENT_HANZI), "big5"),
        (_western_share(sample), "cp1252" if re.search(rb"[\x80-\x9f]", sample) else "latin-1"),
    ]
    score, name = max(scored, key=lambda pair: pair[0])
    # Where nothing fits well: Latin-1 has a character for each byte, so rows can at least be shown.
    return name if score > 0.15 else "latin-1"


def _share(sample: bytes, codec: str, expected: re.Pattern[str]) -> float:
    try:
        text = sample.decode(codec)
    except UnicodeDecodeError:
        return 0.0
    beyond_ascii = sum(character > "\x7f" for character in text)
    return len(expected.findall(text)) / max(1, beyond_ascii)


def _western_share(sample: bytes) -> float:
    """How much of the high bytes stand alone among ASCII letters, as accents and typographic quotes do."""
    alone = b"".join(run for run in HIGH_RUN.findall(sample) if len(run) <= 2)
    letters = len(WESTERN.findall(alone.decode("cp1252", "replace")))
    return letters / max(1, sum(map(len, HIGH_RUN.findall(sample))))
