/** `holdfast doctor` as a command: its options, its exit codes, and its end if a device hangs. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { withIdleThreads } from "../../../test/support/idle-threads.js";
import { runCommand } from "../../../test/support/run-command.js";
import { shortRunFlags } from "../../../test/support/short-process.js";
import { exitCodes } from "../../errors/index.js";
import type { DoctorReport } from "./index.js";

const holdfast = (...args: readonly string[]) => withIdleThreads(() => runCommand(["doctor", ...args]));

/** Started first: it waits most of its time. */
const stalled = startStalledDoctor();
after(() => rmSync(stalled.reports, { recursive: true }));

function startStalledDoctor() {
  const reports = mkdtempSync(join(tmpdir(), "holdfast-doctor-"));
  const fixture = fileURLToPath(new URL("../../../test/fixtures/stalled-doctor.js", import.meta.url));
  const child = spawn(process.execPath, [...shortRunFlags, fixture, reports], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  return { reports, ended: once(child, "exit"), stdout: text(child.stdout), stderr: text(child.stderr) };
}

test("a missing GPU is an error with the reason and exit code 1, as text and as JSON", async () => {
  const { status, stdout } = await holdfast("--device", "cuda", "--index", "99");
  assert.equal(status, exitCodes.failed.code);
  assert.match(stdout, /\n {2}open {10}FAILED .* NO_CUDA: (CUDA is not available|GPU 99 does not exist)/);
  assert.match(stdout, /\nFAILED: open; 8 skipped, in /);
  const json = await holdfast("--device", "cuda", "--index", "99", "--json");
  assert.equal(json.status, exitCodes.failed.code);
  const report: DoctorReport = JSON.parse(json.stdout);
  assert.equal(report.device, null);
  assert.match(report.phases[0]?.failure ?? "", /^NO_CUDA: /);
  assert.ok(report.phases.slice(1).every(({ outcome }) => outcome === "skipped"));
  assert.equal(json.stderr, "");
});

test("invalid options are usage errors", async () => {
  for (const args of [
    ["--device", "gpu"],
    ["--index", "-1"],
    ["--memory", "lots"],
    ["--precision", "f16"],
    ["--batch", "0"],
    ["cuda"],
  ]) {
    const { status, stderr, stdout } = await holdfast(...args);
    assert.equal(status, exitCodes.usage.code, args.join(" "));
    assert.match(stderr, /Run holdfast doctor --help to see its options\./);
    assert.equal(stdout, "");
  }
});

test("a driver call that never returns ends the doctor with exit code 86 in every environment, and the text shows the phase", async () => {
  const [status] = await stalled.ended;
  const stderr = await stalled.stderr;
  assert.equal(status, exitCodes.stalled.code, stderr);
  assert.match(await stalled.stdout, /\n {2}upload {8}passed .*\n {2}forward {7}$/);
  assert.match(stderr, /launch/);
  assert.equal(readdirSync(stalled.reports).length > 0, true);
});
