/** Publishing a stall report: a whole file or none, and no blocking on stderr. */

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import {
  closeSync,
  constants,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  rmSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "node:test";
import { generousTimeoutMs } from "../../../../test/support/timeouts.js";
import { printWithTimeout, writeReport } from "./publish.js";
import { stallReport } from "./report.js";

const report = stallReport({
  kind: "stall",
  pid: 9,
  noticedBy: "thread",
  elapsedMs: 2,
  limitMs: 1,
  reading: undefined,
  process: { threads: [] },
  ending: "none",
  notes: [],
  time: new Date(0),
});

describe("publishing a stall report", () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "holdfast-publish-"));
  });
  afterEach(() => rmSync(folder, { recursive: true }));

  it("writes one whole file into a new folder, and no other file", async () => {
    const reports = join(folder, "runs", "stalls");
    const path = await writeReport(reports, report);
    assert.equal(path, join(reports, "holdfast-stall-9-19700101T000000.000Z.json"));
    assert.deepEqual(JSON.parse(readFileSync(path, "utf8")), report);
    assert.equal(readdirSync(reports).length, 1);
  });

  it("leaves no file if the disk is full, does not wait for a disk that does not respond, and reports both on stderr", () => {
    const program = `
      import files from "node:fs/promises";
      import { publish } from ${JSON.stringify(new URL("./publish.js", import.meta.url).href)};
      const disks = {
        full: { ...files, async writeFile(path) {
          await files.writeFile(path, "");
          throw new Error("ENOSPC: no space left on device, write");
        } },
        hung: { ...files, writeFile: () => new Promise(() => {}) },
      };
      for (const [name, limit] of [["full", [${generousTimeoutMs}]], ["hung", []]])
        console.log(name, await publish(${JSON.stringify(report)}, ${JSON.stringify(folder)}, disks[name], ...limit));
    `;
    const { stdout, stderr } = spawnSync(process.execPath, ["--input-type=module", "--eval", program], {
      encoding: "utf8",
      timeout: generousTimeoutMs,
    });
    const lines = stderr.split("\n").filter((line) => /^ {2}report /.test(line));
    assert.equal(lines.length, 2, stderr);
    assert.match(
      lines[0] ?? "",
      /^ {2}report +could not be written: ENOSPC: no space left on device, write$/,
    );
    assert.match(lines[1] ?? "", /^ {2}report +not written after 500ms: the disk does not respond$/);
    // "false": a write to the hung disk is pending, and `process.exit` would wait for it.
    assert.equal(stdout, "full true\nhung false\n");
    assert.deepEqual(readdirSync(folder), []);
  });

  it("prints all of a long text", async () => {
    const path = join(folder, "out");
    const fd = openSync(path, "w");
    const text = "line\n".repeat(100_000);
    assert.equal(await printWithTimeout(text, generousTimeoutMs, fd), true);
    closeSync(fd);
    assert.equal(readFileSync(path, "utf8"), text);
  });

  it("does not wait for a reader that never reads", async () => {
    const pipe = join(folder, "pipe");
    execFileSync("mkfifo", [pipe]);
    const fd = openSync(pipe, constants.O_RDWR);
    fill(pipe);
    assert.equal(await printWithTimeout("report\n", 50, fd), false);
    // Complete the pending write, so that this process can exit.
    readSync(fd, Buffer.alloc(1 << 16));
    closeSync(fd);
  });

  it("red proof: a plain write to such a pipe blocks", () => {
    const pipe = join(folder, "pipe");
    execFileSync("mkfifo", [pipe]);
    const held = openSync(pipe, constants.O_RDWR);
    fill(pipe);
    const write = ["-c", 'printf x > "$1"', "write", pipe];
    assert.throws(() => execFileSync("sh", write, { timeout: 500 }), { code: "ETIMEDOUT" });
    closeSync(held);
  });

  function fill(pipe: string): void {
    const fd = openSync(pipe, constants.O_WRONLY | constants.O_NONBLOCK);
    assert.throws(() => {
      for (;;) writeSync(fd, Buffer.alloc(4096));
    }, /EAGAIN/);
    closeSync(fd);
  }
});
