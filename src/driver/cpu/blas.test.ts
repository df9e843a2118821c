/** A BLAS library that can't be used is rejected when the runtime opens, by the setting's name and with what helps. */

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

test("a library that is not there", () => {
  rejects("libnosuchblas.so.0", /does not load: .*No such file/);
});

test("a library that lacks a product", (t) => {
  const library = compileBlas("WITHOUT_DOUBLES");
  if (!library) return t.skip(noCompiler);
  rejects(library.path, /has no function cblas_dgemm/);
});

test("a library that counts in 64-bit integers", (t) => {
  const library = compileBlas("WIDE_INTEGERS");
  if (!library) return t.skip(noCompiler);
  rejects(library.path, /uses 64-bit integers/);
});

test("without the setting no library is looked for", () => {
  withCpuRuntime({}, ({ runtime }) => assert.equal(runtime.blas, undefined));
});
