/** An unusable BLAS library is rejected when the runtime opens, with the setting's name and advice. */

import assert from "node:assert/strict";
import test from "node:test";
import { compileBlas } from "../../../test/support/blas-library.js";
import { withCpuRuntime } from "../../../test/support/runtimes.js";
import { findBlas } from "./blas.js";
import { listInstalledBlas } from "./blas-implementations.js";

const noCompiler = "this machine has no C compiler";

function rejects(blas: string, why: RegExp): void {
  const message = new RegExp(
    `^HOLDFAST_BLAS is ".*", which ${why.source}.*Debian's package libopenblas0 .* to auto, or to off`,
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

test("a library with wrong results, even in the last terms of a sum only", (t) => {
  const library = compileBlas("WRONG");
  if (!library) return t.skip(noCompiler);
  rejects(library.path, /gives wrong results: the f32 product of A \[70, 67\] and B \[67, 61\] is wrong/);
});

test("without the setting no library is loaded", () => {
  withCpuRuntime({}, ({ runtime }) => assert.equal(runtime.blas, undefined));
});

test("a library that opens is named with its version, in the device too, and its variables are unset again", (t) => {
  const library = compileBlas();
  if (!library) return t.skip(noCompiler);
  withCpuRuntime({ blas: library.path }, ({ runtime }) => {
    assert.equal(runtime.blas?.name, "OpenBLAS 0.0.7");
    assert.match(runtime.device.name, /^CPU \(.*\) with OpenBLAS 0\.0\.7$/);
  });
  for (const name of ["OPENBLAS_NUM_THREADS", "OPENBLAS_THREAD_TIMEOUT", "OMP_WAIT_POLICY"])
    assert.equal(process.env[name], undefined);
});

test("a search takes the first library that works, and says why it did not take earlier ones", (t) => {
  const [wrong, unknown, good] = [["WRONG"], ["UNKNOWN"], []].map((macros) => compileBlas(...macros));
  if (!wrong || !unknown || !good) return t.skip(noCompiler);
  const paths = [wrong.path, unknown.path, good.path];
  const { blas, rejected } = findBlas(3, ["libnosuchblas.so.0", ...paths]);
  assert.equal(blas?.library, good.path);
  assert.equal(good.threads(), 3);
  assert.deepEqual(
    rejected.map(({ library, isWrong }) => [library, isWrong]),
    [
      [wrong.path, true],
      [unknown.path, false],
    ],
  );
  assert.match(rejected[1]?.why ?? "", /no implementation that Holdfast knows/);
  assert.equal(findBlas(1, ["libnosuchblas.so.0", wrong.path]).blas, undefined);
});

test("installed libraries are sonames and absolute paths, those of conda first", () => {
  for (const platform of ["linux", "darwin"] as const) {
    const libraries = listInstalledBlas(platform, "/opt/conda");
    assert.ok(
      libraries.every((library) => /^(\/|lib\w[\w-]*\.so\.\d$)/.test(library)),
      libraries.join(),
    );
    assert.equal(new Set(libraries).size, libraries.length);
  }
  assert.equal(listInstalledBlas("linux", "/opt/conda")[0], "/opt/conda/lib/libcblas.so.3");
  assert.deepEqual(listInstalledBlas("aix", undefined), []);
});
