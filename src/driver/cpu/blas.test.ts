/** An unusable BLAS library is rejected when the runtime opens, with the setting's name and advice. */

import assert from "node:assert/strict";
import test from "node:test";
import { compileBlas } from "../../../test/support/blas-library.js";
import { withCpuRuntime } from "../../../test/support/runtimes.js";

const noCompiler = "this machine has no C compiler";

function rejects(blas: string, why: RegExp): void {
  const message = new RegExp(
    `^HOLDFAST_BLAS is ".*", which ${why.source}.*Debian's package libopenblas0 .* or to off`,
  );
  assert.throws(() => withCpuRuntime({ blas }, () => {}), { code: "UNSUPPORTED", message });
}

test("a missing library", () => {
  rejects("libnosuchblas.so.0", /does not load: .*No such file/);
});

test("a library without a GEMM function", (t) => {
  const library = compileBlas("WITHOUT_DOUBLES");
  if (!library) return t.skip(noCompiler);
  rejects(library.path, /has no function cblas_dgemm/);
});

test("a library with 64-bit integers", (t) => {
  const library = compileBlas("WIDE_INTEGERS");
  if (!library) return t.skip(noCompiler);
  rejects(library.path, /uses 64-bit integers/);
});

test("without the setting no library is loaded", () => {
  withCpuRuntime({}, ({ runtime }) => assert.equal(runtime.blas, undefined));
});
