"""An Alembic project: revisions forward and back, and autogenerate, each a step. Prints `step<TAB>ok` or the error."""

import os
import subprocess
import sys
from pathlib import Path

URL = f"postgresql+psycopg://holdfast@127.0.0.1:{os.environ['SUITE_PORT']}/holdfast"
REVISIONS = {
    "1": ("None", "op.create_table('al_a', sa.Column('id', sa.Integer, primary_key=True), sa.Column('name', sa.String(50)))",
          "op.drop_table('al_a')"),
    "2": ("'1'", "op.add_column('al_a', sa.Column('age', sa.Integer, server_default='0', nullable=False))",
          "op.drop_column('al_a', 'age')"),
    "3": ("'2'", "op.create_index('al_a_name', 'al_a', ['name'], unique=True)", "op.drop_index('al_a_name')"),
    "4": ("'3'", "op.create_table('al_b', sa.Column('id', sa.Integer, primary_key=True), sa.Column('a', sa.Integer,"
          " sa.ForeignKey('al_a.id', name='al_b_a')))", "op.drop_table('al_b')"),
    "5": ("'4'", "op.alter_column('al_a', 'name', nullable=False)", "op.alter_column('al_a', 'name', nullable=True)"),
    "6": ("'5'", "op.create_check_constraint('al_age', 'al_a', 'age >= 0')", "op.drop_constraint('al_age', 'al_a')"),
}


def alembic(*words):
    return subprocess.run([sys.executable, "-m", "alembic", *words], capture_output=True, text=True, timeout=120)


def report(step, done):
    last = (done.stderr.strip().splitlines() or done.stdout.strip().splitlines() or ["failed"])
    why = next((line for line in reversed(last) if "Error" in line or "error" in line), last[-1])
    print(f"{step}\t{'ok' if done.returncode == 0 else why}", flush=True)


alembic("init", "steps")
ini = Path("alembic.ini")
ini.write_text("\n".join(f"sqlalchemy.url = {URL}" if l.startswith("sqlalchemy.url") else l for l in ini.read_text().splitlines()))
environment = Path("steps/env.py")
metadata = "target_metadata = __import__('sqlalchemy').MetaData()"
environment.write_text(environment.read_text().replace("target_metadata = None", metadata))
for name, (before, up, down) in REVISIONS.items():
    Path(f"steps/versions/{name}.py").write_text(
        f"import sqlalchemy as sa\nfrom alembic import op\nrevision = '{name}'\ndown_revision = {before}\n"
        f"branch_labels = depends_on = None\ndef upgrade():\n    {up}\ndef downgrade():\n    {down}\n"
    )
for name in REVISIONS:
    report(f"upgrade {name}", alembic("upgrade", name))
report("current", alembic("current"))
report("autogenerate", alembic("revision", "--autogenerate", "-m", "what is there"))
for name in [*reversed(list(REVISIONS)[:-1]), "base"]:
    report(f"downgrade {name}", alembic("downgrade", name))
