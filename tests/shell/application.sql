-- A media player's database as its application would have left it: a music store's tables, a listening history like a
-- browser's places, full-text search and a map. It holds every kind of thing that an import has to carry over. The
-- contents are computed, so that every run makes the same file.
PRAGMA foreign_keys = OFF;
PRAGMA user_version = 42;
PRAGMA application_id = 1752131684;
BEGIN;

CREATE TABLE artist (artist_id INTEGER PRIMARY KEY, name NVARCHAR(120) COLLATE NOCASE NOT NULL, founded INT, UNIQUE (name, founded));
CREATE TABLE album (
    album_id INTEGER PRIMARY KEY AUTOINCREMENT,
    title NVARCHAR(160) NOT NULL CHECK (length(title) > 0),
    artist_id INTEGER NOT NULL REFERENCES artist (artist_id) ON UPDATE CASCADE ON DELETE CASCADE,
    cover BLOB
);
CREATE TABLE "media type" ("media type id" INTEGER PRIMARY KEY, "name" TEXT, "select" TEXT DEFAULT 'quoted ''word''');
CREATE TABLE track (
    track_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    album_id INTEGER REFERENCES album (album_id) ON DELETE SET NULL,
    milliseconds INTEGER NOT NULL,
    unit_price NUMERIC(10, 2) NOT NULL,
    seconds REAL GENERATED ALWAYS AS (milliseconds / 1000.0) VIRTUAL,
    label TEXT GENERATED ALWAYS AS (name || ' (' || milliseconds || ')') STORED,
    rating INT CHECK (rating BETWEEN 0 AND 5) DEFAULT 3
);
CREATE INDEX track_by_album ON track (album_id, track_id DESC);
CREATE INDEX track_loved ON track (name) WHERE rating = 5;
CREATE INDEX track_lower ON track (lower(name), milliseconds % 1000);
CREATE UNIQUE INDEX track_label ON track (label);

CREATE TABLE playlist_track (playlist_id INT, track_id INT, position REAL, PRIMARY KEY (playlist_id, track_id)) WITHOUT ROWID;
CREATE TABLE setting (key TEXT PRIMARY KEY COLLATE NOCASE, value) WITHOUT ROWID;
-- No primary key, gaps in the rowids, duplicates, and every storage class in one column.
CREATE TABLE play_log (at, what, anything);
CREATE TABLE strict_sample (id INTEGER PRIMARY KEY, n INT NOT NULL, r REAL, t TEXT, b BLOB, a ANY) STRICT;
CREATE TABLE Größe (名前 TEXT, "größe in m" REAL);
CREATE TABLE node (id INTEGER PRIMARY KEY, parent_id INT REFERENCES node (id) DEFERRABLE INITIALLY DEFERRED, name TEXT);

CREATE TABLE place (id INTEGER PRIMARY KEY, url LONGVARCHAR, title LONGVARCHAR, rev_host LONGVARCHAR, visit_count INTEGER DEFAULT 0, guid TEXT UNIQUE, url_hash INTEGER DEFAULT 0 NOT NULL);
CREATE TABLE visit (id INTEGER PRIMARY KEY, place_id INTEGER NOT NULL, visit_date INTEGER, session INTEGER);
CREATE INDEX visit_by_place ON visit (place_id, visit_date);
CREATE TRIGGER visit_counted AFTER INSERT ON visit BEGIN
    UPDATE place SET visit_count = visit_count + 1 WHERE id = NEW.place_id;
END;
CREATE TRIGGER visit_removed AFTER DELETE ON visit BEGIN
    UPDATE place SET visit_count = visit_count - 1 WHERE id = OLD.place_id;
END;
CREATE TABLE rename_log (id INTEGER PRIMARY KEY, track_id INT, old_name TEXT, new_name TEXT);
CREATE TRIGGER track_renamed AFTER UPDATE OF name ON track WHEN OLD.name <> NEW.name BEGIN
    INSERT INTO rename_log (track_id, old_name, new_name) VALUES (OLD.track_id, OLD.name, NEW.name);
END;
CREATE VIEW album_length AS
    SELECT a.title, r.name AS artist, count(t.track_id) AS tracks, sum(t.milliseconds) AS milliseconds
    FROM album a JOIN artist r USING (artist_id) LEFT JOIN track t ON t.album_id = a.album_id
    GROUP BY a.album_id;
CREATE TRIGGER album_length_rename INSTEAD OF UPDATE OF title ON album_length BEGIN
    UPDATE album SET title = NEW.title WHERE title = OLD.title;
END;

CREATE VIRTUAL TABLE track_text USING fts5 (name, label, content = 'track', content_rowid = 'track_id', tokenize = 'porter unicode61');
CREATE TRIGGER track_text_insert AFTER INSERT ON track BEGIN
    INSERT INTO track_text (rowid, name, label) VALUES (NEW.track_id, NEW.name, NEW.label);
END;
CREATE TRIGGER track_text_delete AFTER DELETE ON track BEGIN
    INSERT INTO track_text (track_text, rowid, name, label) VALUES ('delete', OLD.track_id, OLD.name, OLD.label);
END;
CREATE VIRTUAL TABLE notes USING fts5 (title, body);
CREATE VIRTUAL TABLE venue_box USING rtree (id, min_x, max_x, min_y, max_y, +name TEXT);

WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
INSERT INTO artist SELECT i, CASE i % 4 WHEN 0 THEN 'Björk ' WHEN 1 THEN '坂本 ' WHEN 2 THEN 'O''Neil ' ELSE 'Zoë ' END || i, 1900 + i FROM n;
INSERT INTO artist VALUES (1000000, 'after a gap', NULL);
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 600)
INSERT INTO album (title, artist_id, cover) SELECT 'Album ' || i, 1 + i % 200, CASE WHEN i % 50 = 0 THEN zeroblob(200000 + i) WHEN i % 3 = 0 THEN NULL ELSE CAST('cover ' || i AS BLOB) END FROM n;
DELETE FROM album WHERE album_id > 590; -- sqlite_sequence remembers 600
INSERT INTO "media type" ("name") VALUES ('MPEG'), ('AAC'), (NULL);
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 8000)
INSERT INTO track (track_id, name, album_id, milliseconds, unit_price, rating)
SELECT i * 3, 'Track ' || i || CASE i % 5 WHEN 0 THEN ' running 🎵' WHEN 1 THEN ' ñandú' ELSE '' END, CASE WHEN i % 17 = 0 THEN NULL ELSE 1 + i % 590 END, 100000 + (i * 7919) % 300000, CASE i % 2 WHEN 0 THEN 0.99 ELSE 1 END, i % 6 FROM n;
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
INSERT INTO playlist_track SELECT i % 18, i * 3, i / 7.0 FROM n;
INSERT INTO setting VALUES ('Theme', 'dark'), ('volume', 0.7), ('limit', 9223372036854775807), ('nothing', NULL), ('blob', x'00ff10');
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)
INSERT INTO play_log (rowid, at, what, anything) SELECT i * 10 - 2000, i % 3, 'same', CASE i % 6 WHEN 0 THEN i WHEN 1 THEN i / 8.0 WHEN 2 THEN 'text ' || i WHEN 3 THEN CAST('blob' || i AS BLOB) WHEN 4 THEN '' ELSE NULL END FROM n;
INSERT INTO play_log VALUES (9e999, -9e999, -0.0), (9223372036854775807, -9223372036854775808, 1e-320);
INSERT INTO strict_sample VALUES (1, 1, 0.1, 'a', x'01', 'any'), (2, 2, NULL, '', x'', 2.5), (3, 3, 1e300, 'ż', zeroblob(100000), x'ff');
INSERT INTO Größe VALUES ('身長', 1.85), (char(0x1F600, 0x301), NULL), ('a' || char(0) || 'b', 2);
INSERT INTO node VALUES (1, NULL, 'root'), (2, 1, 'child'), (3, 2, 'grandchild');
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500)
INSERT INTO place (id, url, title, rev_host, guid, url_hash) SELECT i, 'https://example.org/' || i, 'Page ' || i, 'gro.elpmaxe.', printf('%012x', i * 2654435761), i * 48271 % 2147483647 FROM n;
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)
INSERT INTO visit (place_id, visit_date, session) SELECT 1 + i * 31 % 1500, 1700000000000000 + i, i / 20 FROM n;
UPDATE track SET name = name || ' (live)' WHERE track_id % 300 = 0;
INSERT INTO track_text (track_text) VALUES ('rebuild');
INSERT INTO notes VALUES ('shopping', 'milk and honey'), ('travel', 'running to the hills'), ('Übung', 'Füße hoch');
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400)
INSERT INTO venue_box SELECT i, i % 20, i % 20 + 0.5, i / 20, i / 20 + 0.25, 'venue ' || i FROM n;
COMMIT;
ANALYZE;
