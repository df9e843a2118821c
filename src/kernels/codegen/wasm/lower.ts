/** Lowers row and column kernels to launches of WebAssembly functions. */

import { kernelKey } from "../../../ir/index.js";
import type { LaunchCommand } from "../../../runtime/index.js";
import type { ColumnLaunch, RowLaunch } from "../../kernel-call.js";
import type { LaunchConfig } from "../../launch-config.js";
import { cachedSource } from "../../source-cache.js";
import { wasmColumnConfig, wasmRowConfig } from "./configs.js";

export function lowerRowOnWasm(launch: RowLaunch): LaunchCommand {
  return commandOf("rows", launch, wasmRowConfig(launch.kernel, launch.iteration, launch.operands));
}

export function lowerColumnOnWasm(launch: ColumnLaunch): LaunchCommand {
  return commandOf("columns", launch, wasmColumnConfig(launch.kernel, launch));
}

/** `family` distinguishes the cache keys of row and column kernels. */
function commandOf(
  family: string,
  { kernel, operands, scalars = [] }: RowLaunch | ColumnLaunch,
  { key, blocks, sizes, print }: LaunchConfig,
): LaunchCommand {
  return {
    kind: "launch",
    op: kernel.name,
    source: cachedSource(`wasm ${family} ${kernelKey(kernel)} ${key}`, print),
    blocks,
    arguments: [...operands, ...sizes, ...scalars],
  };
}
