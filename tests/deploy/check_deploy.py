"""Checks the files under deploy/ against the metric table; PROMTOOL names promtool.

Every metric that the dashboard or an alert names must stand in docs/metrics.md (which another test
keeps equal to the table), every metric of the table must be on the dashboard, and promtool must
accept each expression and the scrape configuration.
"""

import json
import os
import pathlib
import re
import subprocess
import tempfile

NAME = re.compile(r"\b(?:scanserve|process)_[a-z0-9_]+\b")
SUFFIX = re.compile(r"_(?:bucket|sum|count)$")


def table_of(root):
    rows = re.findall(r"^\| `([a-z0-9_]+)` \| (\w+) \|", (root / "docs/metrics.md").read_text(), re.M)
    return dict(rows)


def names_in(expression, table):
    """Metric names of an expression, histogram series reduced to their metric."""
    for name in NAME.findall(expression):
        base = SUFFIX.sub("", name)
        yield base if table.get(base) == "histogram" else name


def dashboard_expressions(root):
    dashboard = json.loads((root / "deploy/grafana/dashboard.json").read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids)), "panel ids repeat"
    return [t["expr"] for panel in dashboard["panels"] for t in panel.get("targets", [])]


def promtool(tool, *arguments):
    done = subprocess.run([tool, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"promtool {' '.join(arguments)}:\n{done.stdout}{done.stderr}"


def main():
    root, tool = pathlib.Path(__file__).resolve().parents[2], os.environ["PROMTOOL"]
    table = table_of(root)
    assert len(table) > 10, "docs/metrics.md has no table"
    expressions = dashboard_expressions(root)
    alerts = (root / "deploy/prometheus/alerts.yml").read_text()
    shown = {name for e in expressions for name in names_in(e, table)}
    used = shown | set(names_in(alerts, table))
    unknown = used - set(table) - {"scanserve"}
    assert not unknown, f"not in the metric table: {sorted(unknown)}"
    missing = set(table) - shown
    assert not missing, f"metrics that no panel shows: {sorted(missing)}"

    # Recording rules are the simplest file in which promtool parses any expression.
    with tempfile.TemporaryDirectory() as folder:
        rules = pathlib.Path(folder) / "rules.yml"
        plain = [e.replace("$__rate_interval", "1m").replace("$instance", ".*").replace("$model", ".*")
                 for e in expressions]
        rules.write_text(json.dumps({"groups": [{"name": "panels", "rules": [
            {"record": f"panel:{i}", "expr": e} for i, e in enumerate(plain)]}]}))
        promtool(tool, "check", "rules", str(rules))
    promtool(tool, "check", "config", str(root / "deploy/prometheus/prometheus.yml"))
    print(f"{len(expressions)} expressions, {len(table)} metrics")


if __name__ == "__main__":
    main()
