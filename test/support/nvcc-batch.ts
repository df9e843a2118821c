/**
 * Many kernels under NVIDIA's compiler in few calls: all in one file, to PTX once, and from there to the machine code of
 * each architecture. A warning of any of them is an error, and names its kernel.
 */

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { KernelSource } from "holdfast/internals";

/** What the code is written for at least; every later architecture takes its PTX. */
const minArchitecture = "80";

/**
 * Compiles the kernels for all architectures that they are for, in two processes at a time. Throws what the compiler says, where
 * it says anything.
 */
export async function compileBatch(
  kernels: readonly KernelSource[],
  architectures: readonly string[],
): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-nvcc-"));
  const only = new Set(kernels.flatMap(({ cuda }) => cuda?.requiredCapability ?? []));
  try {
    const common = kernels.filter(({ cuda }) => !cuda?.requiredCapability);
    const halves = [0, 1].map((half) => common.filter((_, index) => index % 2 === half));
    // Both have to end before their folder is removed, also where one fails.
    const outcomes = await Promise.allSettled(
      halves.map((some, half) =>
        compileFile(folder, `kernels-${half}`, some, minArchitecture, architectures),
      ),
    );
    for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
    for (const capability of only) {
      const own = kernels.filter(({ cuda }) => cuda?.requiredCapability === capability);
      const architecture = capability.replace(".", "");
      await compileFile(folder, `only-${architecture}`, own, `${architecture}a`, [`sm_${architecture}a`]);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function compileFile(
  folder: string,
  name: string,
  kernels: readonly KernelSource[],
  least: string,
  architectures: readonly string[],
): Promise<void> {
  const [source, ptx] = [join(folder, `${name}.cu`), join(folder, `${name}.ptx`)];
  writeFileSync(source, kernels.map(partOf).join("\n"));
  const strict = ["-std=c++17", "--fmad=false", "-Werror", "all-warnings"];
  await run("nvcc", [...strict, "-ptx", `-arch=compute_${least}`, source, "-o", ptx]);
  for (const architecture of architectures)
    await run("ptxas", ["-Werror", `-arch=${architecture}`, ptx, "-o", join(folder, `${name}.cubin`)]);
}

/** Names are the kernel's own inside of a namespace, but for the entry's. What is wrong is told by the kernel's line. */
function partOf({ name, cuda }: KernelSource, index: number): string {
  if (!cuda) throw new Error(`Kernel "${name}" has no CUDA code.`);
  const code = cuda.code.replace(new RegExp(`\\b${cuda.entry}\\b`), `kernel_${index}_${cuda.entry}`);
  return `namespace code${index} {\n#line 1 "${name.replaceAll(/["\\]/g, "'")}"\n${code}\n}\n`;
}

function run(program: string, options: readonly string[]): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, options, { stdio: ["ignore", "pipe", "pipe"] });
    let printed = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (chunk: string) => {
        printed += chunk;
      });
    }
    child.on("error", reject);
    child.on("close", (status) => {
      if (status === 0 && printed === "") resolve();
      else reject(new Error(`${program} ${options.join(" ")} says:\n${printed}`));
    });
  });
}
