/** The options that all `holdfast train` commands share: device, run folder, output. */

import { type Command, Option } from "commander";
import { settingsTable } from "../../runtime/index.js";
import type { Bytes } from "../../units/index.js";
import { duration, size, wholeNumber } from "../options.js";

/** The shared options, as commander passes them. */
export interface RunOptions {
  readonly device: "auto" | "cpu" | "cuda";
  readonly precision?: "f32" | "tf32" | "bf16";
  readonly capture?: "auto" | "on" | "off";
  readonly memory?: Bytes;
  readonly stallAfter?: string;
  readonly stopWithin: number;
  readonly out?: string;
  readonly resume?: boolean;
  readonly olderCheckpoint?: boolean;
  readonly metricsPort?: number;
  readonly metricsHost?: string;
  readonly profile?: boolean;
  readonly ui?: boolean;
  readonly tensorboard?: string;
  readonly shards?: number;
  readonly shardOptimizer?: boolean;
  readonly rankTimeout?: number;
  readonly json?: boolean;
  readonly quiet?: boolean;
}

/** Adds the shared options. `name` is the beginning of a new run folder's name. */
export function addRunOptions(command: Command, name: string): Command {
  return command
    .optionsGroup("Device:")
    .addOption(
      new Option("--device <device>", "the device to train on; auto uses a GPU if there is one")
        .choices(["auto", "cpu", "cuda"])
        .default("auto"),
    )
    .addOption(
      new Option(
        "--precision <precision>",
        "the precision of matrix products on a GPU (default: f32)",
      ).choices(settingsTable.precision.kind.split(" | ")),
    )
    .addOption(
      new Option(
        "--capture <mode>",
        "whether a compiled step runs as one CUDA graph (default: auto)",
      ).choices(["auto", "on", "off"]),
    )
    .addOption(
      new Option(
        "--memory <size>",
        "the memory budget, such as 64GiB (default: free memory minus a margin)",
      ).argParser(size),
    )
    .optionsGroup("Several processes:")
    .addOption(
      new Option(
        "--shards <number>",
        "cut each batch into so many shards: the result has the same bits for any number of processes (default: one for each)",
      ).argParser(wholeNumber(1)),
    )
    .option("--shard-optimizer", "split the optimizer's moments over the processes, which needs less memory")
    .addOption(
      new Option(
        "--rank-timeout <time>",
        "max. time for which another process may be silent, or idle while others wait (default: 60s)",
      ).argParser(duration),
    )
    .optionsGroup("Run:")
    .option(
      "--out <folder>",
      `the run's folder; if it holds an unfinished run, that run is resumed (default: runs/${name}-TIME)`,
    )
    .option("--resume", "fail if --out holds no run (default: resume a run or start a new one)")
    .option("--older-checkpoint", "resume from an earlier checkpoint if the latest is damaged")
    .option(
      "--stall-after <time>",
      "max. time without progress in a phase, device call or file access, such as 30s; then the watchdog ends the run",
    )
    .addOption(
      new Option("--stop-within <time>", "max. time to end the process after Ctrl-C, SIGTERM or SIGHUP")
        .argParser(duration)
        .default(5000, "5s"),
    )
    .optionsGroup("Output:")
    .addOption(
      new Option(
        "--metrics-port <port>",
        "serve /metrics for Prometheus, and /healthz, while the run trains",
      ).argParser(wholeNumber(1, 65_535)),
    )
    .option("--metrics-host <address>", "the address to serve metrics on (default: 127.0.0.1)")
    .option("--profile", "measure the time of every call in a step, for `holdfast inspect`")
    .option("--ui", "serve the page of `holdfast inspect` while the run trains")
    .option("--tensorboard <folder>", "write the run's curves to this folder for TensorBoard")
    .option("--json", "print one JSON object per line and nothing else")
    .option("--quiet", "print nothing but errors");
}
