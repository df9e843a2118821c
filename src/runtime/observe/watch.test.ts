/** The watchdog for work without a runtime. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { exitCodes } from "../../errors/index.js";
import { startWatch } from "./watch.js";

test("run() returns the result or throws the error, and close() is idempotent", () => {
  const watch = startWatch({ stallAfter: 30_000, reports: tmpdir(), onStall: "end" });
  assert.equal(
    watch.run("a sum", () => 2 + 3),
    5,
  );
  assert.throws(
    () =>
      watch.run("a failure", () => {
        throw new Error("injected");
      }),
    /injected/,
  );
  watch.close();
  watch.close();
});

test("stalled work ends the process with exit code 86 and a report that names it", () => {
  const reports = mkdtempSync(join(tmpdir(), "holdfast-watch-"));
  const script = `
    import { startWatch } from ${JSON.stringify(new URL("./watch.js", import.meta.url).href)};
    const watch = startWatch({ stallAfter: 300, reports: ${JSON.stringify(reports)}, onStall: "end" });
    watch.run("a wedged driver", () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0));
  `;
  const { status, stderr } = spawnSync(process.execPath, ["--input-type=module", "--eval", script], {
    encoding: "utf8",
  });
  assert.equal(status, exitCodes.stalled.code, stderr);
  const [report = ""] = readdirSync(reports);
  assert.match(readFileSync(join(reports, report), "utf8"), /a wedged driver/);
  rmSync(reports, { recursive: true });
});
