/**
 * Commands: the launches, fills and copies that lowering returns as data. The runtime submits them, a cache replays
 * them, and a trace records them. Nothing else reaches a stream.
 */

import type { KernelSource, Stream } from "../../driver/index.js";
import type { Storage } from "../memory/storage.js";
import type { LaunchRequest } from "./work.js";

export interface LaunchCommand {
  readonly kind: "launch";
  /** The op, for messages and reports. */
  readonly op: string;
  readonly source: KernelSource;
  readonly blocks: number;
  /** A storage for each memory parameter of the kernel, a number for each scalar. */
  readonly arguments: readonly (Storage | number)[];
  /** Default: the runtime's stream. */
  readonly stream?: Stream;
  /** Programmatic dependent launch: it may start while the launch before it on its stream ends. */
  readonly isPdl?: boolean;
}

export interface FillCommand {
  readonly kind: "fill";
  readonly target: Storage;
  readonly byte: number;
}

/** Copies the source's bytes to a target of the same size. */
export interface CopyCommand {
  readonly kind: "copy";
  readonly target: Storage;
  readonly source: Storage;
}

export type Command = LaunchCommand | FillCommand | CopyCommand;

/** A command whose kernel the device has loaded, so that submitting it compiles nothing. */
export type LoadedCommand =
  | { readonly kind: "launch"; readonly request: LaunchRequest }
  | FillCommand
  | CopyCommand;
