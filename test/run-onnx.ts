/**
 * `npm run test:onnx`: runs exported models in ONNX Runtime and transformers.js, and compares every op. `-- --install` fetches both into a
 * folder of the user's cache first; HOLDFAST_ONNX_RUNTIME names another folder.
 */

import { spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { readOptions } from "./support/command-line.js";
import { onnxRuntimeFolder, onnxRuntimeVersion, transformersJsVersion } from "./support/onnx/runtime.js";
import { repositoryRoot } from "./support/repository.js";

const options = readOptions(import.meta.url, { install: { type: "boolean", default: false } });

function run(command: string, args: readonly string[], folder: string): void {
  const { status } = spawnSync(command, args, { cwd: folder, stdio: "inherit" });
  if (status !== 0) throw new Error(`${command} ${args[0]} ended with ${status}.`);
}

if (options.install) {
  mkdirSync(onnxRuntimeFolder, { recursive: true });
  // The package has the libraries for the CPU; its install script would fetch those for CUDA.
  const flags = [
    "--ignore-scripts",
    "--no-audit",
    "--no-fund",
    "--no-package-lock",
    "--no-save",
    "--prefix",
    ".",
  ];
  const packages = [
    `onnxruntime-node@${onnxRuntimeVersion}`,
    `@huggingface/transformers@${transformersJsVersion}`,
  ];
  run("npm", ["install", ...flags, ...packages], onnxRuntimeFolder);
}
run(process.execPath, ["scripts/test.mjs", "--suites", "long", "onnx", "transformers-js"], repositoryRoot);
