"""Detection of a file's encoding from its bytes."""

import codecs
import io
import re
from dataclasses import dataclass, field, replace
from typing import IO

from tagline.errors import SpecError

BLOCK = 1 << 20
SAMPLE = 1 << 18
"""Bytes of non-ASCII lines that are enough to tell the legacy encodings apart."""

BOMS = (  # longer marks first: UTF-32's begins with UTF-16's
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

CANDIDATES = (
    "windows-1252", "iso-8859-1", "iso-8859-15", "windows-1250", "iso-8859-2", "windows-1251", "koi8-r", "koi8-u",
    "iso-8859-5", "mac-cyrillic", "cp866", "windows-1253", "iso-8859-7", "windows-1254", "iso-8859-9", "windows-1257",
    "windows-1255", "iso-8859-8", "windows-1256", "iso-8859-6", "cp874", "shift_jis", "cp932", "euc-jp", "euc-kr",
    "cp949", "gb18030", "big5", "big5hkscs", "cp437", "cp850", "cp852", "mac-roman",
)  # fmt: skip
"""Encodings without a byte-order mark that tables of texts still use; the detector knows more."""
WESTERN = ("latin-1", "cp1252")
"""Preferred among encodings that decode a file to the same text."""
LATIN_1_AND_9 = {"latin-1", "iso8859-15"}
"""They differ in eight characters, of which only the euro sign is common: no reason to ask the user."""
WESTERN_CHARACTERS = frozenset("ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜßàáâãäåæçèéêëìíîïñòóôõöøùúûüŒœ“”‘’–—…€£«»°©®™¡¿")
WIDER = {
    "euc_kr": "cp949",
    "shift_jis": "cp932",
    "big5": "big5hkscs",
    "latin-1": "cp1252",
    "iso8859-9": "cp1254",
}
"""Supersets of encodings, for characters that occur only after the sample."""
DETECTED_BYTES = 1 << 16
FEW_CHARACTERS = 6
FEW_DIFFERENCES = 20
CLOSE = 0.95
"""An encoding is uncertain with fewer non-ASCII characters than these, or if the next one is about as likely and
differs in fewer characters than these."""
SHOWN_READINGS = 3
SHOWN_CHARACTERS = 60
ESCAPED_JAPANESE = (b"\x1b$B", b"\x1b$@", b"\x1b(J")
LATIN_WORD = re.compile(r"[A-Za-z\u00c0-\u024f]")
OTHER_SCRIPT = re.compile(r"[\u0370-\u1fff\u3040-\uffef]")
WORD_BEYOND_ASCII = re.compile(r"\w*[^\W\x00-\x7f]\w*")
# Signs of a wrong encoding: control, private-use and invalid characters.
SENSELESS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ue000-\uf8ff\ufffd-\uffff]")
UPPER_CONTROLS = re.compile(r"[\x80-\x9f]")
"""What the ISO encodings make of the bytes for quotes and dashes in the Windows ones."""
UNREADABLE = ("idna", "punycode", "undefined")
"""Python codecs that are meant for names rather than for files."""

KEEP = "tagline-keep"


def _keep_bytes(error: UnicodeError) -> tuple[str, int]:
    """Decode invalid bytes to lone surrogates; Python's `surrogateescape` cannot do that below 0x80 (UTF-16)."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "".join(chr(0xDC00 + byte) for byte in error.object[error.start : error.end]), error.end


codecs.register_error(KEEP, _keep_bytes)


@dataclass(frozen=True)
class Encoding:
    """A codec's name, and whether some bytes of the file are invalid in it."""

    name: str
    damaged: bool = False
    readings: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    """If the encoding is uncertain: the likeliest ones, this one first, and a line as each decodes it."""

    @property
    def errors(self) -> str:
        """The error handler for decoding: in a damaged file invalid bytes become lone surrogates, marking bad rows."""
        return KEEP if self.damaged else "strict"

    def describe_readings(self) -> str:
        """Return a clause on the uncertainty: the encoding used, and how others would decode the same row."""
        (name, row), *others = self.readings
        also = " or ".join(f"{other} ({text})" for other, text in others)
        return f"is read as {name} ({row}); it could be {also}"


def check_named_encoding(name: str, file: IO[bytes]) -> Encoding:
    """Return the encoding that the user named, checked against the bytes."""
    try:
        codec = codecs.lookup(name)
        io.TextIOWrapper(io.BytesIO(), name)  # raises for codecs that are not text encodings, such as hex
    except (LookupError, ValueError) as error:
        raise _unknown_encoding_error(name) from error
    if codec.name in UNREADABLE:
        raise _unknown_encoding_error(name)
    start = file.read(BLOCK)
    file.seek(0)
    marks = tuple(mark for mark, marked in BOMS if marked == codec.name)
    if codec.name in ("utf-16", "utf-32") and not start.startswith(marks):
        name = _unmarked_utf16(start) or f"{codec.name}-le"
    return _check_encoding(name, file)


def detect_encoding(file: IO[bytes]) -> Encoding:
    """Detect the encoding: by its byte-order mark, as UTF-8 if valid, or else the likeliest legacy encoding."""
    start = file.read(BLOCK)
    file.seek(0)
    for mark, name in BOMS:
        if start.startswith(mark):
            return _check_encoding(name, file)
    if name := _unmarked_utf16(start):
        return _check_encoding(name, file)
    if start.isascii() and any(mark in start for mark in ESCAPED_JAPANESE) and _can_decode(file, "iso2022_jp"):
        return Encoding("iso2022_jp")
    file.seek(0)
    if _can_decode(file, "utf-8"):
        return Encoding("utf-8")
    file.seek(0)
    sample = _lines_beyond_ascii(file)
    if _is_damaged_utf8(sample):
        return Encoding("utf-8", damaged=True)
    return _check_legacy(rank_readings(sample), file)


def _unknown_encoding_error(name: str) -> SpecError:
    hint = 'a name such as utf-8, latin-1, cp1252, cp1251, utf-16, shift_jis, euc-kr, gb18030, or "auto"'
    return SpecError(f'data.encoding: no encoding "{name}"', hint=hint)


def _check_encoding(name: str, file: IO[bytes]) -> Encoding:
    return Encoding(name, damaged=not _can_decode(file, name))


def _can_decode(file: IO[bytes], name: str, *, is_sensible: bool = False) -> bool:
    """Return whether a file is valid in an encoding and, with `is_sensible`, has none of its control characters."""
    decoder = codecs.getincrementaldecoder(name)("strict")
    try:
        while block := file.read(BLOCK):
            text = decoder.decode(block)
            if is_sensible and UPPER_CONTROLS.search(text):
                return False
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _unmarked_utf16(start: bytes) -> str:
    """Return the UTF-16 codec of a file without a mark, by its zero bytes and line breaks, if the text makes sense."""
    half = len(start) // 2
    even, odd = start[0::2].count(0), start[1::2].count(0)
    if odd > 0.4 * half and even < 0.05 * half:  # mostly Latin script: every second byte is zero
        return "utf-16-le"
    if even > 0.4 * half and odd < 0.05 * half:
        return "utf-16-be"
    if even + odd == 0 or _makes_sense(start.replace(b"\0", b""), "utf-8"):
        return ""
    for codec in ("utf-16-le", "utf-16-be"):  # in other scripts, only line breaks and spaces have zero bytes
        line_break = "\n".encode(codec)
        if any(start[at : at + 2] == line_break for at in range(0, len(start), 2)) and _makes_sense(start, codec):
            return codec
    return ""


def _makes_sense(start: bytes, codec: str) -> bool:
    """Return whether the first bytes of a file decode to text without control characters."""
    try:
        return not SENSELESS.search(codecs.getincrementaldecoder(codec)("strict").decode(start))
    except UnicodeDecodeError:
        return False


def _lines_beyond_ascii(file: IO[bytes]) -> bytes:
    sample = bytearray()
    for line in iter(lambda: file.readline(SAMPLE), b""):  # a line may be longer than memory
        if not line.isascii():
            sample += line
            if len(sample) >= SAMPLE:
                break
    return bytes(sample)


def _is_damaged_utf8(sample: bytes) -> bool:
    """Return whether this is UTF-8 with some invalid bytes: there are more than twice as many valid characters."""
    text = sample.decode("utf-8", "surrogateescape")
    invalid = sum("\udc80" <= character <= "\udcff" for character in text)
    valid = sum(character > "\x7f" for character in text) - invalid
    return valid > 2 * invalid


@dataclass(frozen=True)
class DecodedSample:
    """The sample decoded in one encoding, and the detector's confidence in it."""

    encoding: str
    text: str
    confidence: float


def rank_readings(sample: bytes) -> list[DecodedSample]:
    """Return the different texts that these bytes may be, the likeliest first, each with its best-known encoding."""
    from chardet import detect_all  # 0.2 s: only for files that are not UTF-8

    sample = sample[: sample.rfind(b"\n", 0, DETECTED_BYTES) + 1 or DETECTED_BYTES]
    western = {text: name for name in reversed(WESTERN) if (text := _decode_sensibly(sample, name)) is not None}
    readings: dict[str, DecodedSample] = {}
    for detected in detect_all(sample, ignore_threshold=True, include_encodings=CANDIDATES):
        name = _python_name(detected["encoding"] or "latin-1")
        text = _decode_sensibly(sample, name)
        if text is not None and text not in readings:
            readings[text] = DecodedSample(western.get(text, name), text, detected["confidence"])
    names = {reading.encoding for reading in readings.values()}
    wider = {wide for narrow, wide in WIDER.items() if narrow in names}
    kept = [reading for reading in readings.values() if reading.encoding not in wider]
    return sorted(kept, key=_is_not_a_stray_accent)


def _is_not_a_stray_accent(reading: DecodedSample) -> bool:
    """Return False for a Western text with too few accents for a detector: it is the likeliest by far."""
    odd = [character for character in reading.text if character > "\x7f"]
    return reading.encoding not in WESTERN or len(odd) >= FEW_CHARACTERS or not set(odd) <= WESTERN_CHARACTERS


def _python_name(name: str) -> str:
    """Return Python's name for an encoding: cp1251 for Windows-1251."""
    return codecs.lookup(name).name


def _decode_sensibly(sample: bytes, encoding: str) -> str | None:
    """Return the text, or None if it has control characters or words of two scripts, such as Latin and Cyrillic."""
    try:
        text = sample.decode(encoding)
    except UnicodeDecodeError:
        return None
    if SENSELESS.search(text):
        return None
    words = WORD_BEYOND_ASCII.findall(text)
    mixed = sum(bool(LATIN_WORD.search(word) and OTHER_SCRIPT.search(word)) for word in words)
    is_east_asian = encoding.startswith(
        ("euc", "shift", "cp9", "gb", "big5")
    )  # Latin letters may be adjacent to others
    return text if is_east_asian or mixed <= 0.2 * len(words) else None


def _check_legacy(readings: list[DecodedSample], file: IO[bytes]) -> Encoding:
    """Return the likeliest encoding, or its superset if the rest of the file needs that, with any uncertainty."""
    if not readings:  # Latin-1 decodes every byte, so that rows can at least be shown
        return Encoding("latin-1")
    best = readings[0]
    shown = _show_readings(readings) if _is_doubtful(readings) else ()
    names = [name for name in (best.encoding, WIDER.get(best.encoding)) if name]
    for name, is_sensible in ((name, is_sensible) for is_sensible in (True, False) for name in names):
        file.seek(0)
        if _can_decode(file, name, is_sensible=is_sensible):
            return Encoding(name, readings=((name, shown[0][1]), *shown[1:]) if shown else ())
    return replace(Encoding(best.encoding, damaged=True), readings=shown)


def _is_doubtful(readings: list[DecodedSample]) -> bool:
    """Return whether the encoding is uncertain: few characters, or a rival about as likely that differs in few."""
    best = readings[0]
    rival = next((reading for reading in readings[1:] if {best.encoding, reading.encoding} != LATIN_1_AND_9), None)
    if rival is None:
        return False
    if sum(character > "\x7f" for character in best.text) < FEW_CHARACTERS:
        return True
    differences = sum(one != other for one, other in zip(best.text, rival.text, strict=False))
    return rival.confidence > CLOSE * best.confidence and differences < FEW_DIFFERENCES


def _show_readings(readings: list[DecodedSample]) -> tuple[tuple[str, str], ...]:
    """Return the line in which the likeliest readings differ, in each of them."""
    likeliest = readings[:SHOWN_READINGS]
    lines = list(zip(*(reading.text.split("\n") for reading in likeliest), strict=False))
    line = max(lines, key=lambda line: len(set(line)))
    first = next(
        (position for position, (one, *others) in enumerate(zip(*line, strict=False)) if any(o != one for o in others)),
        0,
    )
    start = max(0, first - SHOWN_CHARACTERS // 2)
    excerpts = ["".join(c if c.isprintable() else " " for c in each[start : start + SHOWN_CHARACTERS]) for each in line]
    return tuple((reading.encoding, text) for reading, text in zip(likeliest, map(str.strip, excerpts), strict=True))
