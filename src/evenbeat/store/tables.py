"""How the tables themselves do: sizes, what waits for vacuum, which version they are of."""

from typing import NamedTuple

from evenbeat.store.database import Database
from evenbeat.store.migrate import migrations


class TableFigures(NamedTuple):
    """A table in the server's statistics; rows and dead rows are estimates."""

    name: str
    dead_tuples: int
    live_tuples: int
    total_bytes: int


class Tables:
    """What the server knows of the tables."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def figures(self) -> list[TableFigures]:
        """Every table of the schema."""
        rows = self._database.rows("table_figures", {"schema": self._database.schema})
        return [TableFigures._make(row) for row in rows]

    def oldest_transaction_seconds(self) -> float:
        """Age of the oldest transaction that is open beside ours; 0 without one."""
        return max(0.0, float(self._database.rows("oldest_transaction", {})[0][0]))

    def schema_complaint(self) -> str | None:
        """Why the schema does not fit this Evenbeat, if it does not."""
        there = int(self._database.rows("schema_version", {})[0][0])
        known = migrations()[-1].version
        if there < known:
            return f"The schema is at version {there}, this Evenbeat needs {known}: migrate it."
        if there > known:
            return f"The schema is at version {there}, this Evenbeat knows {known}: upgrade it."
        return None
