/** Reading a JSON log takes bounded work for any file. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { makeFolder } from "../../../test/support/folders.js";
import { JsonLog, readJsonLog } from "./json-log.js";

function metricsOf(content: string): string {
  const path = join(makeFolder(), "metrics.jsonl");
  writeFileSync(path, content);
  return path;
}

test("two million blank lines give a few messages, and reading ends after a thousand of them", () => {
  const { records, messages } = readJsonLog(metricsOf(`${"\n".repeat(2 ** 21)}{"step":1}\n`));
  assert.deepEqual(records, []);
  assert.equal(messages.length, 5);
  assert.match(messages[0] ?? "", /Only its last lines are read/);
  assert.equal(messages[4], "1000 lines of metrics.jsonl can't be read. The lines after them are ignored.");
});

test("only the last of many records are read, each complete", () => {
  const lines = Array.from({ length: 60_000 }, (_, step) => JSON.stringify({ step }));
  const { records, messages } = readJsonLog(metricsOf(`${lines.join("\n")}\n`));
  assert.deepEqual(
    [records.length, records[0]?.["step"], records.at(-1)?.["step"]],
    [50_000, 10_000, 59_999],
  );
  assert.deepEqual(messages, ["metrics.jsonl is long. Only its last lines are read, at most 50000."]);
  const wide = Array.from({ length: 20 }, (_, step) => JSON.stringify({ step, x: "x".repeat(2 ** 20) }));
  const cut = readJsonLog(metricsOf(`${wide.join("\n")}\n{"st`));
  assert.deepEqual([cut.records.length, cut.records.at(-1)?.["step"]], [15, 19]);
  assert.match(cut.messages[0] ?? "", /last line of metrics\.jsonl is incomplete/);
});

test("a log that is opened again is truncated after its last record", () => {
  const path = metricsOf(`{"step":1}\n${"\n".repeat(2 ** 21)}{"step`);
  new JsonLog(path).close();
  assert.equal(statSync(path).size, '{"step":1}\n'.length);
});

test("lines of later steps are dropped from a long log, and none of the others", () => {
  const lines = Array.from({ length: 60_000 }, (_, step) => JSON.stringify({ step }));
  const path = metricsOf(`${lines.join("\n")}\n`);
  const log = new JsonLog(path);
  log.dropAfter(59_000);
  log.close();
  assert.equal(statSync(path).size, Buffer.byteLength(`${lines.slice(0, 59_001).join("\n")}\n`));
});

test("a pipe instead of a log is rejected", () => {
  const path = join(makeFolder(), "metrics.jsonl");
  execFileSync("mkfifo", [path]);
  assert.throws(() => readJsonLog(path), /metrics\.jsonl is a folder, a pipe or a device/);
});
