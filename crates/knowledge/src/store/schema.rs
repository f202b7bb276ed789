//! Tables of the database.

use rusqlite::Connection;

/// Version of the tables, in `meta`.
pub(super) const VERSION: &str = "3";

/// `application_id` of the file: "Tide".
pub(super) const APPLICATION: u32 = 0x5469_6465;

/// Creates missing tables and sets the modes of the file.
pub(super) fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    let application: u32 =
        connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if application != APPLICATION {
        // Before the file has a log, so that its first page has it at once.
        connection.pragma_update(None, "application_id", APPLICATION)?;
    }
    // A process that is killed loses no commit. A host that loses power loses the last commits, and
    // the file stays valid (https://www.sqlite.org/wal.html).
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    migrate(connection)?;
    connection.execute_batch(TABLES)?;
    connection.execute(
        "INSERT OR IGNORE INTO meta(key, value) VALUES ('version', ?1)",
        [VERSION],
    )?;
    Ok(())
}

/// Version 2 did not know which samples the application had limited: none counts as such.
fn migrate(connection: &Connection) -> rusqlite::Result<()> {
    let query = "SELECT value FROM meta WHERE key = 'version'";
    // A new file has no tables.
    let version = connection.query_row(query, [], |row| row.get::<_, String>(0));
    if version.as_deref() == Ok("2") {
        connection.execute_batch(
            "BEGIN;
             ALTER TABLE samples ADD COLUMN limited INTEGER NOT NULL DEFAULT 0;
             DROP VIEW IF EXISTS readable;
             UPDATE meta SET value = '3' WHERE key = 'version';
             COMMIT;",
        )?;
    }
    Ok(())
}

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS meta(
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS clouds(
    id INTEGER PRIMARY KEY,
    prefix TEXT NOT NULL UNIQUE
);
CREATE TABLE IF NOT EXISTS clients(
    id INTEGER PRIMARY KEY,
    cloud INTEGER NOT NULL REFERENCES clouds(id),
    name TEXT NOT NULL,
    UNIQUE(cloud, name)
);
CREATE TABLE IF NOT EXISTS samples(
    at_ms INTEGER NOT NULL,
    client INTEGER NOT NULL REFERENCES clients(id),
    scale TEXT NOT NULL,
    rate_bps INTEGER NOT NULL,
    rtt_us INTEGER,
    loss REAL,
    tag TEXT,
    limited INTEGER NOT NULL DEFAULT 0
);
DROP INDEX IF EXISTS samples_by_time;
CREATE INDEX IF NOT EXISTS samples_by_time_and_client ON samples(scale, at_ms, client);
CREATE TABLE IF NOT EXISTS changed_days(
    day INTEGER PRIMARY KEY
);
CREATE TABLE IF NOT EXISTS trajectories(
    cloud INTEGER NOT NULL REFERENCES clouds(id),
    day INTEGER NOT NULL,
    bin INTEGER NOT NULL,
    log2_bps REAL NOT NULL,
    clients INTEGER NOT NULL,
    PRIMARY KEY(cloud, day, bin)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS clusters(
    id INTEGER PRIMARY KEY,
    clouds INTEGER NOT NULL,
    made_ms INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS cluster_bins(
    cluster INTEGER NOT NULL REFERENCES clusters(id),
    bin INTEGER NOT NULL,
    log2_bps REAL NOT NULL,
    PRIMARY KEY(cluster, bin)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS members(
    cloud INTEGER PRIMARY KEY REFERENCES clouds(id),
    cluster INTEGER NOT NULL REFERENCES clusters(id),
    offset_log2 REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS members_by_cluster ON members(cluster);
CREATE VIEW IF NOT EXISTS readable AS
    SELECT datetime(at_ms / 1000, 'unixepoch') AS at, prefix AS cloud, name AS client, scale,
        rate_bps / 1e6 AS mbps, rtt_us / 1e3 AS rtt_ms, loss, tag, limited
    FROM samples JOIN clients ON clients.id = samples.client
        JOIN clouds ON clouds.id = clients.cloud;
";
