/** Native Hopper GEMMs of floats round their operands to TF32: tensor cores alone would drop the low bits, which is a bias. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { cudaMissing, openCudaKernelRuntime, put } from "../../../../test/support/kernel-runtime.js";
import type { LaunchCommand } from "../../../runtime/index.js";
import { submit } from "../../submit.js";
import type { Sm90Config } from "./configs.js";
import { lowerSm90Gemms } from "./launch.js";
import { splitKTile, tiles } from "./tiles.js";

const [m, n, k] = [72, 64, 128];

/** Every mainloop, and every layout that wgmma reads from shared memory or after a transposition. */
const configs: Readonly<Record<string, Pick<Sm90Config, "tile" | "isKMajor">>> = {
  "wgmma SS": { tile: tiles.small, isKMajor: { a: true, b: true } },
  "wgmma SS with a transposed B": { tile: tiles.small, isKMajor: { a: true, b: false } },
  "wgmma RS": { tile: splitKTile, isKMajor: { a: false, b: false } },
  "mma.sync": { tile: tiles.mmaSync, isKMajor: { a: false, b: false } },
};

/** All bits that TF32 does not have are set: the nearest number of TF32 is 2⁻²³ away, and truncation is wrong by nearly 2⁻¹⁰. */
const withLowBits = (index: number): number => 1 + (index % 7) * 2 ** -10 + 2 ** -10 - 2 ** -23;

describe("a native GEMM of floats on CUDA", { skip: cudaMissing }, () => {
  const runtime = cudaMissing ? undefined! : openCudaKernelRuntime();

  /** The largest error of an element, relative to its value in f64. */
  function errorOf(
    { tile, isKMajor }: Pick<Sm90Config, "tile" | "isKMajor">,
    inject: (launch: LaunchCommand) => LaunchCommand = (launch) => launch,
  ): number {
    // [m, k] or [k, m], and [n, k] or [k, n]: element i of the sum is the same in either layout.
    const a = Float32Array.from({ length: m * k }, (_, index) =>
      withLowBits(isKMajor.a ? index % k : Math.floor(index / m)),
    );
    const b = Float32Array.from({ length: n * k }, (_, index) =>
      withLowBits(isKMajor.b ? index % k : Math.floor(index / n)),
    );
    let expected = 0;
    for (let index = 0; index < k; index++) expected += withLowBits(index) ** 2;
    return runtime.step(() => {
      const c = runtime.arena.allocate(4 * m * n, "c");
      const launch = lowerSm90Gemms(
        [
          {
            ...{ dtype: "f32", m, n, k, c: { storage: c, rowStride: n } },
            a: { storage: put(runtime, a, "a"), rowStride: isKMajor.a ? k : m, isTransposed: !isKMajor.a },
            b: { storage: put(runtime, b, "b"), rowStride: isKMajor.b ? k : n, isTransposed: isKMajor.b },
          },
        ],
        { element: "tf32", tile, isKMajor, hasBias: false },
        "gemm",
      );
      submit(runtime, [inject(launch)]);
      const sums = new Float32Array(runtime.read(c).slice().buffer);
      return Math.max(...sums.map((sum) => Math.abs(sum / expected - 1)));
    });
  }

  /** The error of an operand is 2⁻²³, and sums of 128 products have a few more roundings. */
  const tolerance = 2e-6;

  test("rounds both operands to TF32 in every mainloop", () => {
    for (const [name, config] of Object.entries(configs))
      assert.ok(errorOf(config) <= tolerance, `${name}: ${errorOf(config)}`);
  });

  test("red proof: the check detects operands that TMA copies as they are", () => {
    const withoutRounding = (launch: LaunchCommand): LaunchCommand => {
      const { cuda } = launch.source;
      const maps = cuda?.maps?.map((map) => ({ ...map, dtype: "f32" as const }));
      return { ...launch, source: { ...launch.source, ...(cuda && maps && { cuda: { ...cuda, maps } }) } };
    };
    for (const [name, config] of Object.entries(configs))
      assert.ok(errorOf(config, withoutRounding) > 100 * tolerance, name);
  });
});
