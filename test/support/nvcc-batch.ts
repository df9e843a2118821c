/**
 * Compiles many kernels with NVIDIA's compiler in few calls: all in one file, to PTX once, and from there to
 * the machine code of each architecture. Any warning is an error, and names its kernel.
 */

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { KernelSource } from "holdfast/internals";
import { resultFor } from "./nvcc-results.js";

/** Architectures whose PTX is compiled: kernels have more code for Hopper and later (PDL). Later architectures accept either. */
const ptxArchitectures = { early: "80", late: "90" } as const;

/** The architectures of each PTX, as numbers. */
function groupArchitectures(
  architectures: readonly string[],
): readonly (readonly [string, readonly string[]])[] {
  const isLate = (architecture: string): boolean => Number(/\d+/.exec(architecture)?.[0]) >= 90;
  const groups = [
    [ptxArchitectures.early, architectures.filter((architecture) => !isLate(architecture))],
    [ptxArchitectures.late, architectures.filter(isLate)],
  ] as const;
  return groups.filter(([, some]) => some.length > 0);
}

/**
 * Compiles the kernels for all of their architectures, in two processes at a time. Throws any output of the
 * compiler.
 */
export async function compileBatch(
  kernels: readonly KernelSource[],
  architectures: readonly string[],
): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-nvcc-"));
  const only = new Set(kernels.flatMap(({ cuda }) => cuda?.requiredCapability ?? []));
  try {
    const common = kernels.filter(({ cuda }) => !cuda?.requiredCapability);
    const halves = [0, 1]
      .map((half) => common.filter((_, index) => index % 2 === half))
      .filter((some) => some.length > 0);
    // Both have to end before their folder is removed, even if one fails.
    const outcomes = await Promise.allSettled(
      halves.map(async (some, half) => {
        for (const [ptx, group] of groupArchitectures(architectures))
          await compileFile(folder, `kernels-${half}-${ptx}`, some, ptx, group);
      }),
    );
    for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
    for (const capability of only) {
      const matching = kernels.filter(({ cuda }) => cuda?.requiredCapability === capability);
      const architecture = capability.replace(".", "");
      await compileFile(folder, `only-${architecture}`, matching, `${architecture}a`, [
        `sm_${architecture}a`,
      ]);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function compileFile(
  folder: string,
  name: string,
  kernels: readonly KernelSource[],
  ptxArchitecture: string,
  architectures: readonly string[],
): Promise<void> {
  const [source, ptx] = [join(folder, `${name}.cu`), join(folder, `${name}.ptx`)];
  const code = kernels.map(sourceOf).join("\n");
  const strict = ["-std=c++17", "--fmad=false", "-Werror", "all-warnings"];
  const flags = [...strict, "-ptx", `-arch=compute_${ptxArchitecture}`];
  const result = resultFor(...flags, ...architectures, code);
  if (result.text !== undefined) return;
  writeFileSync(source, code);
  await run("nvcc", [...flags, source, "-o", ptx]);
  for (const architecture of architectures)
    await run("ptxas", ["-Werror", `-arch=${architecture}`, ptx, "-o", join(folder, `${name}.cubin`)]);
  result.keep("");
}

/** Names are local to a kernel's namespace, except for the entry's. Errors are reported by the kernel's line. */
function sourceOf({ name, cuda }: KernelSource, index: number): string {
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
