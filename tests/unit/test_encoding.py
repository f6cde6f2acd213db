"""Which encoding bytes are in: told from a sentence or two, from real corpora, and by name."""

import codecs
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from encoded_texts import WRITTEN_IN, write_table

from tagline.data.readers.encoding import Encoding, check_named_encoding, detect_encoding
from tagline.errors import SpecError

SENTENCES = {
    "french": "Le café est fermé à Noël, c'est bien dommage.",
    "german": "Die Größe passt überhaupt nicht. Schöne Grüße aus Köln!",
    "spanish": "¿Dónde está mi pedido? El año pasado llegó antes.",
    "typographic": "He said “never again” – it’s the worst… €50 gone™.",
    "japanese": "朝食はとても美味しかったです。また利用したいと思います。",
    "katakana": "コーヒーとパンのサービスが良い",
    "korean": "배송이 너무 늦어서 실망했습니다. 다시는 사지 않을 거예요.",
    "korean_laughter": "진짜 재미있다 ㅋㅋㅋㅋㅋㅋ",
    "korean_beyond_ksx1001": "똠방각하 뷁 진짜 재밌었어요",
    "chinese": "房间很小，服务态度也不好，下次不会再来了。",
    "chinese_short": "手机屏幕碎了，怎么退货？",
    "taiwanese": "房間很小，服務態度也不好，下次不會再來了。",
    "russian": "Доставка опоздала на три дня, очень плохо.",
}
OLD = [
    ("french", "latin-1"), ("german", "latin-1"), ("spanish", "latin-1"), ("french", "cp1252"),
    ("typographic", "cp1252"), ("japanese", "shift_jis"), ("katakana", "shift_jis"), ("japanese", "euc_jp"),
    ("katakana", "euc_jp"), ("korean", "euc-kr"), ("korean_laughter", "euc-kr"), ("korean_beyond_ksx1001", "cp949"),
    ("chinese", "gb18030"), ("chinese_short", "gb18030"), ("taiwanese", "big5"),
]  # fmt: skip


def as_table(sentence: str) -> str:
    """The sentence in a CSV that is otherwise plain."""
    return f'text,label\n"{sentence}",a\nplain words,b\n'


def read(content: bytes, found: Encoding) -> str:
    return content.decode(found.name, found.errors)


@pytest.mark.parametrize("shape", [lambda sentence: f"{sentence}\n", as_table], ids=["line", "table"])
@pytest.mark.parametrize(("sentence", "codec"), OLD)
def test_a_sentence_or_two_tell_an_older_encoding(sentence: str, codec: str, shape: Callable[[str], str]) -> None:
    text = shape(SENTENCES[sentence])
    content = text.encode(codec)
    found = detect_encoding(io.BytesIO(content))
    assert not found.damaged
    assert read(content, found) == text


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("sentence", SENTENCES)
def test_unicode_is_told_with_its_mark_and_without(sentence: str, codec: str) -> None:
    text = f"{SENTENCES[sentence]}\n{SENTENCES[sentence]}\n"
    content = text.encode(codec)
    found = detect_encoding(io.BytesIO(content))
    assert read(content, found) == text


def test_big_endian_utf_16_with_its_mark_is_read() -> None:
    content = codecs.BOM_UTF16_BE + "名前,ラベル\n".encode("utf-16-be")
    assert read(content, detect_encoding(io.BytesIO(content))) == "名前,ラベル\n"


@pytest.mark.parametrize(
    ("name", "codecs_of"),
    [
        ("allocine_tv_fr/train.tsv", ["latin-1", "cp1252"]),
        ("jrte_ja/pn.csv", ["shift_jis", "euc_jp"]),
        ("nsmc_ko/ratings_train_30k.txt", ["euc-kr", "cp949"]),
        ("chnsenticorp_htl_zh/ChnSentiCorp_htl_all.csv", ["gb18030"]),
    ],
)
def test_real_corpora_are_told_in_the_encodings_of_their_language(
    name: str, codecs_of: list[str], corpus: Callable[[str], Path]
) -> None:
    lines = corpus(name).read_text("utf-8").splitlines(keepends=True)[:3000]
    lines = [line for line in lines if not any("\x80" <= character <= "\x9f" for character in line)]
    for codec in [*codecs_of, "utf-16-le", "utf-16-be", "utf-8-sig"]:
        text = "".join(line for line in lines if fits(line, codec))
        content = text.encode(codec)
        found = detect_encoding(io.BytesIO(content))
        assert not found.damaged
        assert read(content, found) == text, codec


def fits(line: str, codec: str) -> bool:
    try:
        return line.encode(codec).decode(codec) == line
    except UnicodeEncodeError:
        return False


@pytest.mark.parametrize("sentences", [1, 2, 6])
@pytest.mark.parametrize(("language", "codec"), WRITTEN_IN)
def test_the_encodings_of_many_languages_are_told(language: str, codec: str, sentences: int) -> None:
    text = write_table(language, sentences)
    content = text.encode(codec)
    found = detect_encoding(io.BytesIO(content))
    assert not found.damaged
    assert read(content, found) == text


def test_a_longer_file_leaves_no_doubt() -> None:
    found = {
        (language, codec): detect_encoding(io.BytesIO(write_table(language, 6, copies=20).encode(codec)))
        for language, codec in WRITTEN_IN
    }
    assert [key for key, encoding in found.items() if encoding.readings] == []


@pytest.mark.parametrize(
    ("text", "codec", "first", "rows"),
    [
        ("how naïve", "latin-1", "latin-1", ("how naïve", "how naďve")),
        ("bir ağaç", "cp1254", "latin-1", ("bir aðaç", "bir ağaç")),
        ("Zásilka přišla pozdě.", "iso-8859-2", "iso8859-2", ("Zásilka přišla pozdě.", "Zásilka přiąla pozdě.")),
    ],
)
def test_where_little_tells_the_readings_of_a_row_are_given(
    text: str, codec: str, first: str, rows: tuple[str, ...]
) -> None:
    found = detect_encoding(io.BytesIO(f"plain words\n{text}\nmore of them\n".encode(codec)))
    assert found.name == found.readings[0][0] == first
    assert 2 <= len(found.readings) <= 3
    assert {row for _, row in found.readings} >= set(rows)
    for name, row in found.readings:
        assert text.encode(codec).decode(name) == row


def test_utf_8_is_never_in_doubt() -> None:
    assert detect_encoding(io.BytesIO("how naïve\n".encode())).readings == ()


def test_a_character_after_the_sample_widens_the_encoding() -> None:
    content = ("진짜 재미있다\n" * 10_000 + "똠방각하\n").encode("cp949")
    assert detect_encoding(io.BytesIO(content)) == Encoding("cp949")


def test_financial_phrasebank_as_it_is_published_is_latin_1(corpus: Callable[[str], Path]) -> None:
    with corpus("financial_phrasebank/Sentences_50Agree.txt").open("rb") as file:
        found = detect_encoding(file)
        assert found == Encoding("latin-1")
        assert found.readings == ()


def test_one_accent_in_a_plain_file_is_latin_1() -> None:
    content = b"plain\n" * 50_000 + "naïve\n".encode("latin-1")
    assert detect_encoding(io.BytesIO(content)) == Encoding("latin-1")


def test_one_bad_byte_in_utf_8_is_damage_and_no_other_encoding() -> None:
    content = "déjà vu, à bientôt\n".encode() * 10 + b"caf\xe9\n"
    assert detect_encoding(io.BytesIO(content)) == Encoding("utf-8", damaged=True)


@pytest.mark.parametrize(
    "content",
    [
        codecs.BOM_UTF8 + b"caf\xe9\n",
        "text\n".encode("utf-16") + b"x",
        "text\n".encode("utf-16") + b"\x00\xd8a\x00",
        "text, more of it\n".encode("utf-16-le") + b"x",
        "text\n".encode("utf-32") + b"\xff\xff\xff\xff",
    ],
    ids=["utf-8 mark", "utf-16 cut off", "utf-16 half a pair", "utf-16-le cut off", "utf-32"],
)
def test_a_marked_file_may_be_damaged_too(content: bytes) -> None:
    found = detect_encoding(io.BytesIO(content))
    assert found.damaged
    kept = [character for character in read(content, found) if "\udc00" <= character <= "\udcff"]
    assert kept, "the odd bytes are kept, so that their row can be named"


@pytest.mark.parametrize(
    "content",
    [
        b"text,label\n\0start of a line,a\nfine,b\n",
        b"text,label\nin\0side,a\nfine,b\n",
        "text,label\ncafé\0,a\nfine,b\n".encode(),
    ],
)
def test_stray_zero_bytes_do_not_make_utf_16(content: bytes) -> None:
    assert detect_encoding(io.BytesIO(content)) == Encoding("utf-8")


@pytest.mark.parametrize("content", [b"", b"\0", b"a", b"\0\0\0\0", b"\xff", codecs.BOM_UTF8, codecs.BOM_UTF16_LE])
def test_next_to_nothing_is_no_problem(content: bytes) -> None:
    assert read(content, detect_encoding(io.BytesIO(content))) is not None


@pytest.mark.parametrize("name", ["latin-1", "LATIN1", "cp1252", "shift_jis", "euc-kr", "gb18030", "utf-16", "utf_8"])
def test_an_encoding_can_be_named(name: str) -> None:
    content = "plain\n".encode(name)
    found = check_named_encoding(name, io.BytesIO(content))
    assert not found.damaged
    assert read(content, found) == "plain\n"


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_utf_16_named_without_a_mark_in_the_file_is_read(codec: str) -> None:
    content = "text,label\nplain,a\n".encode(codec)
    assert read(content, check_named_encoding("utf-16", io.BytesIO(content))) == "text,label\nplain,a\n"


def test_a_few_accents_are_enough_to_know_damaged_utf_8() -> None:
    assert detect_encoding(io.BytesIO("plain\ncafé, thé, été\ncaf".encode() + b"\xc3")) == Encoding(
        "utf-8", damaged=True
    )


def test_a_named_encoding_that_does_not_fit_is_damage() -> None:
    assert check_named_encoding("utf-16", io.BytesIO(codecs.BOM_UTF8 + b"odd!")).damaged
    assert check_named_encoding("utf-8", io.BytesIO(b"caf\xe9")).damaged
    assert check_named_encoding("ascii", io.BytesIO("é".encode())).damaged
    assert check_named_encoding("utf-32-le", io.BytesIO(b"plain text")).damaged


@pytest.mark.parametrize("name", ["utf-9", "", "base64", "hex", "rot13", "zlib", "idna", "undefined", "a\0b", "../x"])
def test_a_name_that_is_no_encoding_of_text_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match="no encoding") as refused:
        check_named_encoding(name, io.BytesIO(b"plain"))
    assert "utf-8" in refused.value.hint


@pytest.mark.parametrize(
    ("codec", "language", "late"), [("cp1252", "german", "„Großartig“ – nur 5 €"), ("cp1254", "turkish", "“İyi” …")]
)
def test_quotes_that_come_late_are_no_control_characters(codec: str, language: str, late: str) -> None:
    text = write_table(language, 6, copies=300) + f"{late},a\n"
    content = text.encode(codec)
    assert read(content, detect_encoding(io.BytesIO(content))) == text
