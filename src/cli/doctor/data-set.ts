/**
 * The data set of the test: 213,304 rows of [1, 193], each a separate tensor. This number of copies once hung a driver. The
 * upload goes through staging, so that the number of copies depends on bytes; then every row is read back and compared.
 */

import type { Parameter } from "../../nn/index.js";
import { alignment, type Region, type Runtime } from "../../runtime/index.js";
import type { Device, Tensor } from "../../tensor/index.js";
import { alignUp, MiB } from "../../units/index.js";
import { check } from "./phase-log.js";
import { randomWords } from "./random.js";

export const features = 193;
export const classes = 3;

const elementBytes = 4;
const rowBytes = features * elementBytes;
const rowStride = alignUp(rowBytes, alignment);
/** Rows per read-back, so that the host does not need a second copy of the data set. */
const rowsPerRead = Math.floor((64 * MiB) / rowStride);

/** The data set in host memory. */
export interface HostRows {
  readonly values: Float32Array<ArrayBuffer>; // [N, 193]
  readonly labels: Int32Array<ArrayBuffer>; // [N]
}

/** The data set in persistent device memory. */
export interface DeviceRows {
  readonly rows: Tensor; // f32 [N, 193]
  readonly labels: Tensor; // i32 [N]
  readonly regions: Readonly<Record<keyof HostRows, Region>>;
}

/** Values between -1 and 1, and labels; the same on every machine. */
export function makeRows(count: number): HostRows {
  const next = randomWords(1);
  const values = new Float32Array(count * features);
  for (let index = 0; index < values.length; index++) values[index] = next() / 2 ** 31 - 1;
  const labels = Int32Array.from({ length: count }, () => Math.floor((next() / 2 ** 32) * classes));
  return { values, labels };
}

/** The number of rows that fit the budget if `otherBytes` stay free. */
export function maxRowsIn({ budget }: Runtime, requested: number, otherBytes: number): number {
  return Math.max(1, Math.min(requested, Math.floor((budget.left - otherBytes) / rowStride)));
}

export function uploadRows(device: Device, { values, labels }: HostRows): DeviceRows {
  const { runtime } = device;
  const count = labels.length;
  const sizes = Array.from({ length: count }, (_, row) => ({ name: `row ${row}`, size: rowBytes }));
  const regions = {
    values: runtime.persistent.place("data set", "rows", sizes),
    labels: runtime.persistent.place("data set", "labels", [{ name: "labels", size: labels.byteLength }]),
  };
  runtime.upload([
    ...regions.values.storages.map((target, row) => ({ source: rowOf(values, row), target })),
    ...regions.labels.storages.map((target) => ({ source: labels, target })),
  ]);
  const padded = device.fromStorage(regions.values.whole, [count, rowStride / elementBytes], "f32", "rows");
  return {
    rows: padded.narrow(1, 0, features),
    labels: device.fromStorage(regions.labels.storages[0], [count], "i32", "labels"),
    regions,
  };
}

/** Reads everything back and compares every byte. */
export function requireUploaded(
  { runtime }: Device,
  { values, labels }: HostRows,
  { regions }: DeviceRows,
  parameters: readonly Parameter[],
): void {
  for (let first = 0; first < labels.length; first += rowsPerRead) {
    const count = Math.min(rowsPerRead, labels.length - first);
    const chunk = runtime.view(regions.values.whole, first * rowStride, count * rowStride);
    const bytes = runtime.read(chunk);
    for (let row = 0; row < count; row++) {
      const actual = bytes.subarray(row * rowStride, row * rowStride + rowBytes);
      requireSame(`row ${first + row}`, rowOf(values, first + row), actual);
    }
  }
  requireSame("the labels", labels, runtime.read(regions.labels.whole).subarray(0, labels.byteLength));
  for (const parameter of parameters) {
    const { storage } = parameter.array;
    if (storage)
      requireSame(parameter.name, Float32Array.from(parameter.initialValues()), runtime.read(storage));
  }
}

function rowOf(values: Float32Array<ArrayBuffer>, row: number): Float32Array<ArrayBuffer> {
  return values.subarray(row * features, (row + 1) * features);
}

function requireSame(name: string, sent: ArrayBufferView<ArrayBuffer>, actual: Uint8Array): void {
  const expected = Buffer.from(sent.buffer, sent.byteOffset, sent.byteLength);
  check(expected.equals(actual), () => {
    const at = expected.findIndex((byte, index) => byte !== actual[index]);
    return `The upload is damaged: byte ${at} of ${name} was sent as ${expected[at]} and read back as ${actual[at]}.`;
  });
}
