/** A run records its BLAS library. It resumes only with the same one, and without one if it had none. */

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { compileBlas } from "../../../test/support/blas-library.js";
import { rejects } from "../../../test/support/rejects.js";
import { withCpuRuntime } from "../../../test/support/runtimes.js";
import { openJobRun } from "../../crossasset/index.js";
import { blasForRun, blasSetting } from "./run-blas.js";

const folder = mkdtempSync(join(tmpdir(), "holdfast-run-blas-"));
after(() => rmSync(folder, { recursive: true }));

const openRun = (path: string, settings: { readonly blas?: string }) =>
  openJobRun({ path, settings: { epochs: 1, ...settings }, device: "CPU" }).end(undefined, 3);

test("a run without a library resumes without one, unless the environment names one", () => {
  const path = join(folder, "without");
  assert.deepEqual(blasForRun(path, {}), {});
  openRun(path, {});
  assert.deepEqual(blasForRun(path, {}), { blas: "off" });
  assert.deepEqual(blasForRun(path, { HOLDFAST_BLAS: "auto" }), {});
  rejects(
    "BAD_SETTING",
    () => openRun(path, { blas: "BLIS 1.0, 2 threads" }),
    /blas was not set and is now "BLIS 1\.0, 2 threads"\. Another BLAS library.* changes the last bits/,
  );
});

test("a run with a library records its version and threads, and rejects others by name", (t) => {
  const library = compileBlas();
  if (!library) return t.skip("this machine has no C compiler");
  const path = join(folder, "with");
  withCpuRuntime({ blas: library.path }, ({ runtime }) => {
    const recorded = blasSetting(runtime);
    assert.match(recorded.blas ?? "", /^OpenBLAS 0\.0\.7, \d+ threads?$/);
    openRun(path, recorded);
    assert.deepEqual(blasForRun(path, {}), {});
  });
  withCpuRuntime({}, ({ runtime }) => {
    const open = () => openRun(path, blasSetting(runtime));
    rejects("BAD_SETTING", open, /blas was "OpenBLAS 0\.0\.7, \d+ threads?" and is now not set/);
  });
});
