"""docs/cluster-file.md has every key of the schema, with its type, default and meaning as they are now."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from yrnode.config.cluster import Cluster

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cluster_file", DOCS / "cluster_file.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_script_writes(script: ModuleType) -> None:
    text = script.PAGE.read_text("utf-8")
    assert text == script.page(text), "run: python docs/cluster_file.py"


def test_every_key_has_a_row_and_a_meaning(script: ModuleType) -> None:
    schema = Cluster.model_json_schema()
    rows = [line for line in script.tables(schema).splitlines() if line.startswith("| `")]
    keys = [key for model in (schema, *schema["$defs"].values()) for key in model.get("properties", ())]
    assert {row.split("`")[1] for row in rows} == set(keys)
    assert not [row for row in rows if row.split(" | ")[-1].strip(" |") == ""]


def test_another_default_is_another_page(script: ModuleType) -> None:
    schema = Cluster.model_json_schema()
    schema["$defs"]["Etcd"]["properties"]["client_port"]["default"] = 2378
    assert script.tables(schema) != script.tables()
