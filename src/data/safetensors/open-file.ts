/** Opens a safetensors file and reads its header, so that a large file's tensors can be read one piece after the other. */

import { closeSync, readSync } from "node:fs";
import { openRegularFile, readSpan } from "../../files/index.js";
import { beat, duringFileWork } from "../../units/index.js";
import { fileError } from "../atomic-write.js";
import { lengthBytes } from "./format.js";
import { checkPlacement, type Entry, headerLength, parseHeader } from "./header.js";
import { badFile, quote } from "./rejection.js";

/** A tensor's entry in a file: its name, the format's name of its dtype, its shape, and where its bytes are. */
export type TensorInFile = Entry;

/** An open file. */
export interface OpenSafetensors {
  readonly path: string;
  readonly tensors: ReadonlyMap<string, TensorInFile>;
  readonly metadata: ReadonlyMap<string, string>;
  /** Reads bytes of a tensor, from an offset in it, into an array. */
  read(tensor: TensorInFile, offset: number, into: Uint8Array): void;
  close(): void;
}

/** Opens a file. Its header is checked like that of a file that is read whole. */
export function openSafetensors(path: string): OpenSafetensors {
  try {
    return duringFileWork("disk-read", () => open(path));
  } catch (error) {
    throw fileError(`${path} can't be read`, path, error);
  }
}

function open(path: string): OpenSafetensors {
  const { file, stats } = openRegularFile(path);
  try {
    const length = headerLength(readSpan(file, 0, lengthBytes), stats.size);
    const dataStart = lengthBytes + length;
    const { entries: tensors, metadata } = parseHeader(readSpan(file, lengthBytes, length));
    checkPlacement(tensors, stats.size - dataStart);
    const read = (tensor: TensorInFile, offset: number, into: Uint8Array): void => {
      try {
        duringFileWork("disk-read", () => fill(file, into, dataStart + tensor.begin + offset));
      } catch (error) {
        throw fileError(`Tensor ${quote(tensor.name)} of ${path} can't be read`, path, error);
      }
    };
    return { path, tensors, metadata, read, close: () => closeSync(file) };
  } catch (error) {
    closeSync(file);
    throw error;
  }
}

function fill(file: number, into: Uint8Array, position: number): void {
  for (let done = 0; done < into.length; ) {
    const count = readSync(file, into, done, into.length - done, position + done);
    if (count === 0) throw badFile(`It ends ${into.length - done} bytes too early.`);
    done += count;
    beat();
  }
}
