/**
 * A kernel's arguments in native memory that never moves. Values are in 8-byte slots, tensor maps in larger ones. A
 * launch takes the table of their addresses, which is written once. A launch writes only the values, and the
 * driver copies them before it returns.
 */

import { alignUp, type Span } from "../../units/index.js";
import { requireScalar, requireSpan } from "../checks.js";
import { type Argument, isMemory, type Parameter, type TensorMap } from "../driver.js";
import type { Reservations } from "../reservations.js";
import type { Cuda } from "./calls.js";
import { NativeBuffer } from "./native-buffer.js";
import { requireLive } from "./spans.js";
import { mapAlignment, mapBytes, TensorMapSlot } from "./tensor-maps.js";

const slotBytes = 8;

export class ArgumentBlock {
  readonly #kernel: string;
  readonly #parameters: readonly Parameter[];
  readonly #block: NativeBuffer;
  readonly #view: DataView;
  /** The parameters that are passed as tensor maps. */
  readonly #maps: readonly TensorMapSlot[];
  /** Address of the table of argument addresses. */
  readonly table: number;

  /** `maps` must have passed `requireTensorMaps`. */
  constructor(cuda: Cuda, kernel: string, parameters: readonly Parameter[], maps: readonly TensorMap[] = []) {
    this.#kernel = kernel;
    this.#parameters = parameters;
    const slotsBytes = Math.max(1, 2 * parameters.length) * slotBytes;
    // The block's address is arbitrary, so the padding allows an aligned start.
    const mapsBytes = maps.length > 0 ? mapAlignment + maps.length * mapBytes : 0;
    this.#block = new NativeBuffer(slotsBytes + mapsBytes);
    this.#view = this.#block.view;
    this.table = this.#block.address + parameters.length * slotBytes;
    const firstMap = alignUp(this.#block.address + slotsBytes, mapAlignment);
    this.#maps = maps.map(
      (map, index) =>
        new TensorMapSlot(cuda, map, firstMap + index * mapBytes, (parameter) =>
          this.#describeArgument(parameter),
        ),
    );
    for (const index of parameters.keys()) {
      const map = this.#maps.find(({ parameter }) => parameter === index);
      this.#setAddress(parameters.length + index, map?.address ?? this.#block.address + index * slotBytes);
    }
  }

  /**
   * Writes a launch's values, except tensor maps. Every span must be committed. Adds the accessed spans to `accessed`.
   */
  write(args: readonly Argument[], reservations: Reservations, accessed: Span[] | undefined): void {
    for (let index = 0; index < this.#parameters.length; index++) {
      const parameter = this.#parameters[index] as Parameter;
      const argument = args[index];
      if (isMemory(parameter)) {
        const span = requireSpan(argument, () => this.#describeArgument(index));
        requireLive(reservations, span, () => this.#describeArgument(index));
        accessed?.push(span);
        this.#setAddress(index, span.address);
        continue;
      }
      const value = requireScalar(parameter, argument, () => this.#describeArgument(index));
      const offset = index * slotBytes;
      if (parameter === "u32") this.#view.setUint32(offset, value, true);
      else if (parameter === "i32") this.#view.setInt32(offset, value, true);
      else if (parameter === "f32") this.#view.setFloat32(offset, value, true);
      else this.#view.setFloat64(offset, value, true);
    }
  }

  /** Encodes the tensor maps of a launch whose values are written, unless they are those of the previous launch. */
  encodeMaps(args: readonly Argument[]): void {
    for (const map of this.#maps) map.encode(args);
  }

  free(): void {
    for (const map of this.#maps) map.free();
    this.#block.free();
  }

  /** Two 32-bit halves: a BigInt for each of a step's thousand addresses costs measurable garbage collection. */
  #setAddress(slot: number, address: number): void {
    this.#view.setUint32(slot * slotBytes, address >>> 0, true);
    this.#view.setUint32(slot * slotBytes + 4, Math.floor(address / 2 ** 32), true);
  }

  #describeArgument(index: number): string {
    return `Argument ${index} of kernel "${this.#kernel}" (${this.#parameters[index]})`;
  }
}
