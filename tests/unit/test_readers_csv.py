"""CSV and TSV: separators, headers, quotes and line breaks, and every bad row named by its line."""

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tagline.data.readers import BadRow, BadRows, Layout, Source, inspect, read_batches
from tagline.errors import DataError, SpecError


def written(directory: Path, content: str | bytes, name: str = "data.csv") -> Path:
    path = directory / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(path: Path, layout: Layout = Layout()) -> tuple[Source, list[tuple[object, ...]], list[BadRow]]:  # noqa: B008
    """The source, its good rows as (line, cell, ...), and its bad rows."""
    source, bad = inspect(str(path), layout), BadRows("skip")
    found = [row for batch in read_batches(source, bad=bad) for row in zip(batch.lines, *batch.columns.values())]  # noqa: B905
    return source, found, bad.rows


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
def test_separators_and_line_breaks_are_told(separator: str, line_break: str, tmp_path: Path) -> None:
    lines = [["text", "label"], ["good, really", "a"], ["bad; or not", "b"], ["so|so", "a"]]
    stream = io.StringIO(newline="")
    csv.writer(stream, delimiter=separator, lineterminator=line_break).writerows(lines)
    source, rows, bad = read(written(tmp_path, stream.getvalue()))
    assert (source.separator, source.columns, bad) == (separator, ("text", "label"), [])
    assert rows == [(2, "good, really", "a"), (3, "bad; or not", "b"), (4, "so|so", "a")]


def test_line_breaks_inside_quotes_belong_to_the_text_and_count_as_lines(tmp_path: Path) -> None:
    content = 'text,label\n"one\ntwo\n\nfour",a\nplain,b\n"x\r\ny",a\nlast,b'
    _, rows, _ = read(written(tmp_path, content))
    assert rows == [(2, "one\ntwo\n\nfour", "a"), (6, "plain", "b"), (7, "x\r\ny", "a"), (9, "last", "b")]


def test_a_bad_row_is_named_by_its_line_also_after_rows_of_several_lines(tmp_path: Path) -> None:
    content = 'text,label\n"one\ntwo",a\n\n\nonly one field\nfine,b\n"a\nb",c,d\n'
    path = written(tmp_path, content)
    _, rows, bad = read(path)
    assert rows == [(2, "one\ntwo", "a"), (7, "fine", "b")]
    assert [(row.file, row.line) for row in bad] == [(str(path), 6), (str(path), 8)]
    assert bad[0].reason == "1 field where 2 are expected"
    assert bad[1].reason == "3 fields where 2 are expected; it runs to line 9: is a quote left open?"


def test_bad_rows_stop_with_each_named_and_a_next_step(tmp_path: Path) -> None:
    path = written(tmp_path, "text,label\na,b,c\nfine,x\nd\n")
    bad = BadRows("stop")
    list(read_batches(inspect(str(path)), bad=bad))
    with pytest.raises(DataError) as error:
        bad.raise_if_bad()
    assert error.value.message == (
        f"2 bad rows:\n  {path}:2: 3 fields where 2 are expected\n  {path}:4: 1 field where 2 are expected"
    )
    assert "data.bad_rows=skip" in error.value.hint


def test_many_bad_rows_stop_the_reading_early(tmp_path: Path) -> None:
    path = written(tmp_path, "text,label\n" + "a,b,c\n" * 1000)
    with pytest.raises(DataError, match="at least 20 bad rows"):
        list(read_batches(inspect(str(path)), bad=BadRows("stop")))


def test_a_quote_left_open_in_the_middle_is_named_where_it_opens(tmp_path: Path) -> None:
    content = 'text,label\nfine,a\n"left open,b\nnext,a\nand "quoted" on,b\n"closed, then",a\n'
    _, rows, bad = read(written(tmp_path, content))
    assert rows == [(2, "fine", "a"), (6, "closed, then", "a")]
    assert [(row.line, row.reason) for row in bad] == [(3, "it runs to line 5: is a quote left open?")]


def test_words_after_a_closing_quote_are_forgiven_on_one_line(tmp_path: Path) -> None:
    _, rows, bad = read(written(tmp_path, 'text,label\n"Hello" she said,a\n5" disk,b\n'))
    assert (rows, bad) == ([(2, "Hello she said", "a"), (3, '5" disk', "b")], [])


@pytest.mark.parametrize("end", ["", "\n", "\nmore,a\nand more,b\n"])
def test_a_quote_left_open_to_the_end_is_named_where_it_opens(end: str, tmp_path: Path) -> None:
    _, rows, bad = read(written(tmp_path, f'text,label\nfine,a\nlast,"left open{end}'))
    assert rows == [(2, "fine", "a")]
    assert [(row.line, row.reason) for row in bad] == [(3, "a quote opened here is never closed")]


def test_a_file_without_a_last_line_break_is_whole(tmp_path: Path) -> None:
    _, rows, bad = read(written(tmp_path, 'text,label\nfine,a\n"quoted",b'))
    assert (rows, bad) == ([(2, "fine", "a"), (3, "quoted", "b")], [])


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ("ham\tok see you there\nspam\tWIN a prize now\nham\tyes\n", ("column_1", "column_2")),
        ("1,great film\n0,dull\n1,again!\n", ("column_1", "column_2")),
        ("I loved every minute of this very long film,pos\nbad,neg\n", ("column_1", "column_2")),
        ("label\ttext\nham\tok see you\nspam\tWIN\n", ("label", "text")),
        (",text,label\n0,fine,a\n1,bad,b\n", ("column_1", "text", "label")),
        (" text , label \nfine,a\n", ("text", "label")),
        ("text,spam\nok see you there now,ham\nWIN a prize right now,spam\n", ("text", "spam")),
        ("ham,text me later\nspam,WIN a prize right now\nham,ok see you there then\n", ("column_1", "column_2")),
        ("ham,thanks\nspam,WIN a prize right now\nham,ok see you there then ok\n", ("column_1", "column_2")),
        (
            "12.json,true,ann,a wall\n9.json,true,bob,no wall\n7.json,false,eve,that wall\n",
            tuple(f"column_{n}" for n in range(1, 5)),
        ),
        ("文本,标签\n房间很小,差\n很好,好\n不错,好\n", ("文本", "标签")),
        ("好,房间很小\n差,很好\n好,不错\n", ("column_1", "column_2")),
        ("what,n\nok see you there now,1\nwhat,2\n", ("what", "n")),
        ("v1,v2,,,\nham,ok see you there,,,\n", ("v1", "v2", "column_3", "column_4", "column_5")),
    ],
)
def test_a_header_is_told_from_a_row(content: str, columns: tuple[str, ...], tmp_path: Path) -> None:
    source, _, bad = read(written(tmp_path, content))
    assert (source.columns, bad) == (columns, [])


@pytest.mark.parametrize(
    ("content", "name", "positions"),
    [
        ("text,label,text\nfine,a,b\n", "text", "column 1 and column 3"),
        ("id,label , label\n1,a,b\n", "label", "column 2 and column 3"),
        ("text,,column_2\nfine,a,b\n", "column_2", "column 2 and column 3"),
    ],
)
def test_two_columns_of_one_name_are_refused(content: str, name: str, positions: str, tmp_path: Path) -> None:
    path = written(tmp_path, content)
    with pytest.raises(DataError, match=f'has two columns called "{name}": {positions}') as refused:
        inspect(str(path))
    assert "data.header=false" in refused.value.hint
    assert len(inspect(str(path), Layout(header=False)).columns) == 3


def test_the_user_may_say_whether_there_is_a_header(tmp_path: Path) -> None:
    path = written(tmp_path, "text,label\nfine,a\n")
    assert read(path, Layout(header=False))[1] == [(1, "text", "label"), (2, "fine", "a")]
    assert read(written(tmp_path, "1,2\nfine,a\n", "n.csv"), Layout(header=True))[0].columns == ("1", "2")


def test_a_header_alone_has_columns_and_no_rows(tmp_path: Path) -> None:
    source, rows, bad = read(written(tmp_path, "text,label\n"))
    assert (source.columns, rows, bad) == (("text", "label"), [], [])


def test_a_mark_at_the_start_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    source, rows, _ = read(written(tmp_path, "text,label\nfine,a\n".encode("utf-8-sig")))
    assert (source.columns, rows) == (("text", "label"), [(2, "fine", "a")])


def test_a_mark_before_a_quoted_name_is_no_part_of_it(tmp_path: Path) -> None:
    assert read(written(tmp_path, '"text","label"\nfine,a\n'.encode("utf-8-sig")))[0].columns == ("text", "label")


@pytest.mark.parametrize("codec", ["latin-1", "utf-16", "utf-16-le"])
def test_other_encodings_are_decoded(codec: str, tmp_path: Path) -> None:
    content = 'text,label\n"Größe\npasst, überhaupt",a\ncafé,b\n'
    _, rows, bad = read(written(tmp_path, content.encode(codec)))
    assert (rows, bad) == ([(2, "Größe\npasst, überhaupt", "a"), (4, "café", "b")], [])


@pytest.mark.parametrize(
    ("content", "layout", "line", "reason"),
    [
        ("text,label\nok,a\n".encode("utf-8-sig") + b"caf\xe9,b\n", Layout(), 3, "byte 0xe9 is not utf-8-sig"),
        (b"text,label\ncaf\xe9,b\nok,a\n", Layout(encoding="utf-8"), 2, "byte 0xe9 is not utf-8"),
        ('text,label\n"a\nb",é\nok,a\n'.encode(), Layout(encoding="ascii"), 2, "byte 0xc3 is not ascii"),
        ("text,label\n".encode("utf-16-le") + b"\x00\xd8" + "x,a\nok,a\n".encode("utf-16-le"),
         Layout(encoding="utf-16-le"), 2, "byte 0x00 is not utf-16-le"),
        (b"text,label\n\x83\xff,a\nok,a\n", Layout(encoding="shift_jis"), 2, "byte 0x83 is not shift_jis"),
    ],
)  # fmt: skip
def test_bytes_that_do_not_decode_make_a_bad_row(
    content: bytes, layout: Layout, line: int, reason: str, tmp_path: Path
) -> None:
    _, rows, bad = read(written(tmp_path, content), layout)
    assert [(row.line, row.reason) for row in bad] == [(line, reason)]
    assert [row[1:] for row in rows] == [("ok", "a")]


def test_quotes_in_a_tsv_may_be_plain_characters(tmp_path: Path) -> None:
    content = 'label\ttext\nham\t"Hello" she said\nspam\t5" disk\nham\t"never closed\nham\tan end"\nham\t"all of it"\n'
    _, rows, bad = read(written(tmp_path, content, "data.tsv"))
    assert bad == []
    assert [row[2] for row in rows] == ['"Hello" she said', '5" disk', '"never closed', 'an end"', '"all of it"']


def test_a_plain_quote_never_joins_two_rows_of_a_tsv(tmp_path: Path) -> None:
    _, rows, bad = read(written(tmp_path, 'label\ttext\nham\t"opened\nspam\tclosed"\n', "data.tsv"))
    assert (rows, bad) == ([(2, "ham", '"opened'), (3, "spam", 'closed"')], [])


def test_a_plain_quote_at_the_very_start_of_a_tsv_hides_no_column(tmp_path: Path) -> None:
    source, rows, bad = read(written(tmp_path, '"Hello there, my\tham\nok then\tham\nno\tspam\n', "data.tsv"))
    assert (len(source.columns), len(rows), bad) == (2, 3, [])


def test_quotes_in_a_tsv_may_enclose_fields(tmp_path: Path) -> None:
    content = 'label\ttext\nham\t"a ""word"" here"\nspam\t"two\nlines"\nham\t"a\ttab"\n'
    _, rows, bad = read(written(tmp_path, content, "data.tsv"))
    assert (rows, bad) == ([(2, "ham", 'a "word" here'), (3, "spam", "two\nlines"), (5, "ham", "a\ttab")], [])


def test_a_tsv_with_real_quotes_keeps_them_in_spite_of_a_bad_row(tmp_path: Path) -> None:
    content = 'label\ttext\nham\t"two\nlines"\nspam\nham\t"a\ttab"\n'
    _, rows, bad = read(written(tmp_path, content, "data.tsv"))
    assert rows == [(2, "ham", "two\nlines"), (5, "ham", "a\ttab")]
    assert [row.line for row in bad] == [4]


@pytest.mark.parametrize("separator", ["", "::", "\n", '"'])
def test_a_separator_must_be_one_character_that_can_separate(separator: str, tmp_path: Path) -> None:
    path = written(tmp_path, "text,label\nfine,a\n")
    if not separator:
        assert read(path, Layout(separator=separator))[0].separator == ","
        return
    with pytest.raises(SpecError, match=r"data\.separator"):
        inspect(str(path), Layout(format="csv", separator=separator))


def test_a_named_separator_and_format_are_taken_at_their_word(tmp_path: Path) -> None:
    path = written(tmp_path, "text~label\na,b~x\n", "data.txt")
    source, rows, _ = read(path, Layout(format="csv", separator="~"))
    assert (source.columns, rows) == (("text", "label"), [(2, "a,b", "x")])


@pytest.mark.parametrize("name", ["data.csv.gz", "data.gz", "data"])
def test_a_zipped_csv_is_read_whatever_its_name(name: str, tmp_path: Path) -> None:
    source, rows, _ = read(written(tmp_path, gzip.compress(b"text,label\nfine,a\nbad,b\n"), name))
    assert (source.format, rows) == ("csv", [(2, "fine", "a"), (3, "bad", "b")])


def test_a_field_may_be_very_long(tmp_path: Path) -> None:
    long = "x" * 1_000_000
    _, rows, bad = read(written(tmp_path, f"text,label\n{long},a\n"))
    assert (rows, bad) == ([(2, long, "a")], [])


def test_a_header_longer_than_the_sample_is_read(tmp_path: Path) -> None:
    names = [f"column number {i}" for i in range(10_000)]
    source, rows, bad = read(written(tmp_path, ",".join(names) + "\n" + ",".join("0" * 10_000) + "\n"))
    assert (source.columns, len(rows), bad) == (tuple(names), 1, [])


def test_zero_bytes_and_control_characters_are_characters(tmp_path: Path) -> None:
    _, rows, bad = read(written(tmp_path, "text,label\nze\0ro,a\n\x1b[31mred,b\nfeed\x0cform\x85\u2028,a\n"))
    assert (rows, bad) == ([(2, "ze\0ro", "a"), (3, "\x1b[31mred", "b"), (4, "feed\x0cform\x85\u2028", "a")], [])


ODD = st.sampled_from(",;|'\"\t\r\n \x0b\x0c\u2028\ufeff")
CELLS = st.text(ODD | st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
TABLES = st.integers(2, 4).flatmap(lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), max_size=8))


# Python's writer leaves a lone carriage return unquoted where lines end in "\n" alone.
DIALECTS = st.sampled_from([(csv.QUOTE_ALL, "\n"), (csv.QUOTE_ALL, "\r\n"), (csv.QUOTE_MINIMAL, "\r\n")])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=TABLES, separator=st.sampled_from(",;\t|"), dialect=DIALECTS)
def test_any_table_is_read_back_as_it_was_written(
    table: list[list[str]], separator: str, dialect: tuple[Any, str], tmp_path: Path
) -> None:
    if separator == "\t":  # a tab and a line break in one field: nothing tells that from two rows with plain quotes
        table = [[cell.replace("\t", " ") for cell in row] for row in table]
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, delimiter=separator, quoting=dialect[0], lineterminator=dialect[1])
    writer.writerow([f"name {i}" for i in range(len(table[0]) if table else 2)])
    starts = []
    for row in table:
        starts.append(len(physical_lines(stream.getvalue())) + 1)
        writer.writerow(row)
    path = written(tmp_path, stream.getvalue())
    _, rows, bad = read(path, Layout(format="csv", separator=separator, header=True, encoding="utf-8"))
    assert ([list(row[1:]) for row in rows], bad) == (table, [])
    assert [row[0] for row in rows] == starts


def physical_lines(text: str) -> list[str]:
    return list(io.StringIO(text, newline=""))
