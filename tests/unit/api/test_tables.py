"""The report as JSON, CSV, Markdown and DataFrames, and the schema that is published of it."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest

import phantora_async
from phantora_async import cli
from phantora_async.api.tables import Table
from phantora_async.errors import ExitCode, UsageError
from phantora_async.report import report_schema

from .test_results import report, run_of

ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT / "docs" / "data" / "report.schema.json"
GIB = 1 << 30
REASONS = {
    "missing": "",
    "step": 5,
    "ns": 1000,
    "run_ns": 1000,
    "parts": [
        {"kind": "compute", "name": "gemm", "doing": "", "ns": 750},
        {"kind": "host", "name": "rank 0", "doing": "waits", "ns": 250},
    ],
    "path": [],
    "kernels": {"gpu": [], "path": []},
    "collectives": {
        "gpu": [{"title": "all_reduce", "calls": 3, "gpu_ns": 500, "waiting_ns": 200, "path_ns": 0}],
        "path": [{"title": "send | receive", "calls": 1, "gpu_ns": 900, "waiting_ns": 0, "path_ns": 100}],
    },
    "what_if": [],
}


def explained() -> dict[str, Any]:
    content = report()
    content["simulated"]["reasons"] = REASONS
    for rank in content["simulated"]["ranks"]:
        rank["memory"]["parts"] = {"parameters": (rank["rank"] + 1) * GIB, "activations": 5}
    return content


def command(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert cli.run(["report", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_json_is_the_report_s_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = report()
    run_of(content, tmp_path)
    assert json.loads(command(capsys, tmp_path, "--json")) == content


def test_csv_has_seconds_bytes_and_shares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_of(explained(), tmp_path)
    [figures] = rows(command(capsys, tmp_path, "--csv"))
    assert (figures["world_size"], figures["gpu"], figures["step_time"]) == ("2", "h200", "1.6e-06")
    assert [row["time"] for row in rows(command(capsys, tmp_path, "--csv", "--table", "steps"))] == ["1.6e-06"] * 5
    held = rows(command(capsys, tmp_path, "--csv", "--table", "memory"))
    assert [(row["rank"], row["part"], row["nbytes"]) for row in held] == [
        ("0", "parameters", str(GIB)),
        ("0", "activations", "5"),
        ("1", "parameters", str(2 * GIB)),
        ("1", "activations", "5"),
    ]
    found = rows(command(capsys, tmp_path, "--csv", "--table", "collectives"))
    assert [(row["title"], row["calls"], float(row["time"])) for row in found] == [
        ("send | receive", "1", 9e-7),
        ("all_reduce", "3", 5e-7),
    ]
    assert [float(row["share"]) for row in rows(command(capsys, tmp_path, "--csv", "--table", "reasons"))] == [
        0.75,
        0.25,
    ]


def test_markdown_has_whole_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_of(explained(), tmp_path)
    tables = command(capsys, tmp_path, "--md").split("\n\n")
    assert tables[0].startswith("# ")
    assert "| step time | 1.6 µs |" in tables[1]
    for table in tables[1:]:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1, table


HOSTILE = "<script>alert(1)</script> a|b `code` *b* __c__ [l](http://x) \x1b[31m \x9b31m \u202e ![i](y) @all & \\\\ a_b"


def test_what_names_hold_is_text_in_markdown_and_for_terminals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = explained()
    content["simulated"] |= {"gpu": HOSTILE, "cluster": HOSTILE}
    content["run"] = content.get("run", {}) | {"script": HOSTILE}
    kernel = {"title": f"``{HOSTILE}", "launches": 1, "mean_ns": 1000, "source": "roofline"}
    content["simulated"]["kernels"] |= {"signatures": [kernel], "ranks": []}
    run_of(content, tmp_path)
    printed = command(capsys, tmp_path, "--md")
    for raw in ("\x1b", "\x9b", "\u202e"):
        assert raw not in printed
    plain = re.sub(r"(?<!\\)(`+) .*? \1(?= \|)", "", printed)
    assert plain != printed, "titles of kernels are code"
    assert not re.search(r"<\w|(?<!\\)[`*\[\]]|@all|://", plain), plain
    for table in printed.split("\n\n")[1:]:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1, table
    as_json = command(capsys, tmp_path, "--json")
    assert not re.search("[\x1b\x9b\u202e]", as_json), "a terminal obeys nothing"
    assert json.loads(as_json) == content


@pytest.mark.parametrize("table", get_args(Table))
def test_every_table_is_a_data_frame(table: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pandas")
    run = run_of(explained(), tmp_path)
    frame = run.to_pandas(table)
    printed = csv.reader(io.StringIO(command(capsys, tmp_path, "--csv", "--table", table)))
    assert list(frame.columns) == next(printed)
    assert len(frame) == len(list(printed))


def test_without_reasons_their_tables_say_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(report(), tmp_path)
    with pytest.raises(UsageError, match="the run had no --reasons"):
        run.to_pandas("reasons")
    assert cli.run(["report", str(tmp_path), "--csv", "--table", "collectives"]) == ExitCode.USAGE
    assert "hint: run --reasons" in capsys.readouterr().err


def closed(schema: Any) -> Any:
    """Returns the schema in which objects have no fields but those that it names."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    whole = {key: closed(value) for key, value in schema.items()}
    if "properties" in schema and isinstance(schema.get("type"), str):
        whole["additionalProperties"] = False
    return whole


def check(content: Any, schema: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(content)


def test_the_published_schema_is_that_of_reports(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(PUBLISHED.read_text()) == report_schema(), f"report --schema > {PUBLISHED.relative_to(ROOT)}"
    assert command(capsys, "--schema") == PUBLISHED.read_text()


def test_a_report_keeps_its_schema_and_has_no_field_that_it_lacks() -> None:
    check(explained(), closed(report_schema()))


def test_a_damaged_report_does_not_keep_it() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    content = report()
    content["simulated"]["ranks"][1]["compute_ns"] = "soon"
    with pytest.raises(jsonschema.ValidationError, match="'soon' is not of type 'integer'"):
        check(content, report_schema())


def test_dir_lists_what_the_package_offers() -> None:
    assert dir(phantora_async) == sorted(phantora_async.__all__)
    assert (ROOT / "phantora_async" / "py.typed").is_file()
