/** linalg: errors with the place in the batch, the same bits in compiled steps, and bases that are completed. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { eye, HoldfastError, linalg, type Tensor } from "holdfast";
import { openCpuDevice } from "./support/devices.js";
import { rejects } from "./support/rejects.js";
import { sameBytes } from "./support/same-bytes.js";

const cpu = openCpuDevice({ threads: 1 });
const matrix = (values: readonly number[], ...shape: readonly number[]): Tensor =>
  cpu.fromHost(values, shape, "f32", "a");

/** The second of three is singular, and its leading minor of order 2 is 0. */
const batch = matrix([2, 1, 1, 3, 1, 2, 2, 4, 1, 0, 0, 1], 3, 2, 2);

const singular: Readonly<Record<string, readonly [() => unknown, RegExp]>> = {
  inv: [() => linalg.inv(batch), /^linalg\.inv: matrix \[1\] of the batch is singular: pivot 2 is 0\./],
  solve: [
    () => linalg.solve(batch, matrix([1, 2], 2)),
    /^linalg\.solve: matrix \[1\] of the batch is singular/,
  ],
  cholesky: [
    () => linalg.cholesky(batch),
    /matrix \[1\] of the batch is not positive definite: its leading minor of order 2/,
  ],
  luFactor: [() => linalg.luFactor(batch), /matrix \[1\] of the batch is singular/],
  "a power": [() => linalg.matrixPower(batch.select(0, 1), -1), /^linalg\.inv: the matrix is singular/],
  "two batch axes": [() => linalg.inv(batch.reshape([3, 1, 2, 2])), /matrix \[1, 0\] of the batch/],
};

for (const [what, [use, message]] of Object.entries(singular)) {
  test(`${what}: the error names the singular matrix of the batch`, () => {
    assert.throws(
      use,
      (error) =>
        error instanceof HoldfastError && error.code === "SINGULAR_MATRIX" && message.test(error.message),
    );
  });
}

const rejected: Readonly<Record<string, readonly [() => unknown, RegExp]>> = {
  "a vector": [() => linalg.inv(matrix([1, 2], 2)), /\[2\] is no matrix/],
  "a matrix that is not square": [
    () => linalg.det(matrix([1, 2], 1, 2)),
    /\[1, 2\]: the matrices must be square/,
  ],
  "rows that differ": [() => linalg.solve(batch, matrix([1, 2, 3], 3, 1)), /must have as many rows/],
  "a norm without a name": [() => linalg.matrixNorm(batch, { ord: 5 }), /the order is 5/],
  "a fraction of a power": [() => linalg.matrixPower(batch, 0.5), /pass square matrices and a whole number/],
  integers: [() => linalg.inv(cpu.fromHost([1, 0, 0, 1], [2, 2], "i32")), /it needs floats/],
};

const oblong = matrix([1, 2, 3, 4, 5, 6], 2, 3);
const whole = cpu.fromHost([1, 0, 0, 1], [2, 2], "i32");

test("an error names the public function, not the op that it uses", () => {
  const { cholesky, det, eigh, eigvalsh, inv, logdet, matrixExp, slogdet, solve } = linalg;
  for (const [name, call] of Object.entries({ cholesky, det, eigh, eigvalsh, inv, matrixExp, slogdet })) {
    const start = new RegExp(`^linalg\\.${name}`);
    rejects("BAD_SHAPE", () => call(oblong), start);
    rejects("BAD_DTYPE", () => call(whole), start);
  }
  const { cond, luFactor, matrixRank, pinv, qr, svd, svdvals } = linalg;
  const nuclear = (a: Tensor): Tensor => linalg.matrixNorm(a, { ord: "nuc" });
  for (const [name, call] of Object.entries({ cond, luFactor, matrixRank, pinv, qr, svd, svdvals, nuclear }))
    rejects(
      "BAD_DTYPE",
      () => call(whole),
      new RegExp(`^linalg\\.${name === "nuclear" ? "matrixNorm" : name}`),
    );
  rejects("BAD_SHAPE", () => solve(oblong, oblong), /^linalg\.solve: \[2, 3\]/);
  rejects("BAD_DTYPE", () => solve(batch, whole), /^linalg\.solve of i32/);
  rejects("BAD_SHAPE", () => logdet(oblong), /^linalg\.logdet/);
});

for (const [what, [use, message]] of Object.entries(rejected)) {
  test(`${what}: the error says what is valid`, () => {
    assert.throws(use, (error) => error instanceof HoldfastError && message.test(error.message));
  });
}

test("a compiled step has the bits of an eager one, forward and backward", () => {
  const a = matrix([4, 1, 0, 1, 3, 1, 0, 1, 2], 3, 3);
  const body = (x: Tensor): readonly Tensor[] => {
    const w = x.detach();
    w.requiresGrad = true;
    const { S, Vh } = linalg.svd(w);
    const loss = linalg.cholesky(w).sum().add(linalg.solve(w, Vh).mul(S).sum()).add(w.logdet());
    loss.backward();
    return [loss, w.grad!];
  };
  const eager = cpu.step(() => body(a).map((result) => result.dataSync()));
  const step = cpu.compile((x: Tensor) => {
    const [loss, gradient] = body(x);
    return { loss: loss!, gradient: gradient! };
  });
  const { loss, gradient } = step(a);
  sameBytes(loss.dataSync(), eager[0]!, "the loss");
  sameBytes(gradient.dataSync(), eager[1]!, "the gradient");
});

test("in a compiled step the results of a singular matrix are NaN, and those of the others stay", () => {
  const step = cpu.compile((x: Tensor) => ({ inverse: linalg.inv(x) }));
  const values = [...step(batch).inverse.dataSync()];
  assert.deepEqual(
    values.map(Number.isNaN),
    values.map((_, index) => index >= 4 && index < 8),
  );
});

test("full matrices of an SVD and a complete QR are orthogonal, and give the matrix back", () => {
  const a = matrix([1, 2, 3, 4, 5, 6, 7, 8], 4, 2);
  const { U, S, Vh } = linalg.svd(a);
  const { Q, R } = linalg.qr(a, { mode: "complete" });
  assert.deepEqual(
    [U.shape, Vh.shape, Q.shape, R.shape],
    [
      [4, 4],
      [2, 2],
      [4, 4],
      [4, 2],
    ],
  );
  for (const basis of [U, Q])
    assert.ok(
      basis
        .t()
        .matmul(basis)
        .allclose(eye(4, 4, { device: cpu }), { atol: 1e-5 }),
    );
  assert.ok(U.narrow(1, 0, 2).mul(S).matmul(Vh).allclose(a, { rtol: 1e-5 }));
  assert.ok(Q.matmul(R).allclose(a, { rtol: 1e-5 }));
});

test("a complete QR with more rows than columns rejects a gradient", () => {
  const a = matrix([1, 2], 2, 1);
  a.requiresGrad = true;
  assert.throws(() => linalg.qr(a, { mode: "complete" }), { code: "NO_GRADIENT" });
});
