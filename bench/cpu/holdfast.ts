/** Holdfast's CrossAsset training step and product. HOLDFAST_BLAS, where it is set, names the library that multiplies. */

import { openCpuDriver, openRuntime } from "holdfast";
import { type GemmProblem, gemm, gemmScratchBytes } from "../../src/kernels/index.js";
import { readRepositoryFile } from "../../test/support/repository.js";
import { report } from "./report.js";
import { productSize, threads, values } from "./workload.js";

const driver = openCpuDriver({ threads });
const runtime = openRuntime({ driver, stallAfter: "off", print: () => {} });

function prepareProduct(): () => void {
  const { m, n, k } = productSize;
  const entries = Object.entries({ a: m * k, b: k * n, c: m * n });
  const placements = entries.map(([name, elements]) => ({ name, size: elements * 4 }));
  const [a, b, c] = runtime.persistent.place("data set", "product", placements).storages;
  runtime.upload([
    { source: values(1, [m, k]), target: a! },
    { source: values(2, [k, n]), target: b! },
  ]);
  const problem: GemmProblem = {
    dtype: "f32",
    m,
    n,
    k,
    a: { storage: a!, rowStride: k },
    b: { storage: b!, rowStride: n },
    c: { storage: c!, rowStride: n },
  };
  const scratchBytes = gemmScratchBytes(runtime, problem);
  return () =>
    runtime.step(() => {
      const scratch = scratchBytes > 0 && { scratch: runtime.arena.allocate(scratchBytes, "gemm") };
      gemm(runtime, { ...problem, ...scratch });
      runtime.synchronize();
    });
}

await report({
  peer: runtime.blas ? "Holdfast with HOLDFAST_BLAS" : "Holdfast",
  version: (JSON.parse(readRepositoryFile("package.json")) as { version: string }).version,
  prepareProduct,
});
runtime.close();
driver.close();
