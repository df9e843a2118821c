/**
 * A kernel's arguments in memory that never moves: values in slots of eight bytes, maps of matrices in larger ones, and the table
 * of their addresses that a launch takes. The table is written once; a launch writes the values only, and the driver copies them
 * before it returns.
 */

import { alignUp, type Span } from "../../units/index.js";
import { requireScalar, requireSpan } from "../checks.js";
import { type Argument, isMemory, type Parameter, type TensorMap } from "../driver.js";
import type { Reservations } from "../reservations.js";
import type { Cuda } from "./calls.js";
import { OutBlock } from "./out-block.js";
import { requireLive } from "./spans.js";
import { mapAlignment, mapBytes, TensorMapSlot } from "./tensor-maps.js";

const slotBytes = 8;

export class ArgumentBlock {
  readonly #kernel: string;
  readonly #parameters: readonly Parameter[];
  readonly #block: OutBlock;
  readonly #view: DataView;
  /** Those of the parameters that are taken as maps. */
  readonly #maps: readonly TensorMapSlot[];
  /** Where the table of addresses begins. */
  readonly table: number;

  /** `maps` have passed `requireTensorMaps`. */
  constructor(cuda: Cuda, kernel: string, parameters: readonly Parameter[], maps: readonly TensorMap[] = []) {
    this.#kernel = kernel;
    this.#parameters = parameters;
    const plainBytes = Math.max(1, 2 * parameters.length) * slotBytes;
    // Where the block begins is not ours to choose, so there is room to begin on a multiple.
    const room = maps.length > 0 ? mapAlignment + maps.length * mapBytes : 0;
    this.#block = new OutBlock(plainBytes + room);
    this.#view = this.#block.view;
    this.table = this.#block.address + parameters.length * slotBytes;
    const firstMap = alignUp(this.#block.address + plainBytes, mapAlignment);
    this.#maps = maps.map(
      (map, index) =>
        new TensorMapSlot(cuda, map, firstMap + index * mapBytes, (parameter) => this.#nameOf(parameter)),
    );
    for (const index of parameters.keys()) {
      const map = this.#maps.find(({ parameter }) => parameter === index);
      this.#setAddress(parameters.length + index, map?.address ?? this.#block.address + index * slotBytes);
    }
  }

  /**
   * Writes a launch's values, except maps; every span must have memory behind it. What it touches is added to `touched`.
   */
  write(given: readonly Argument[], book: Reservations, touched: Span[] | undefined): void {
    for (let index = 0; index < this.#parameters.length; index++) {
      const parameter = this.#parameters[index] as Parameter;
      const argument = given[index];
      if (isMemory(parameter)) {
        const span = requireSpan(argument, () => this.#nameOf(index));
        requireLive(book, span, () => this.#nameOf(index));
        touched?.push(span);
        this.#setAddress(index, span.address);
        continue;
      }
      const value = requireScalar(parameter, argument, () => this.#nameOf(index));
      const at = index * slotBytes;
      if (parameter === "u32") this.#view.setUint32(at, value, true);
      else if (parameter === "i32") this.#view.setInt32(at, value, true);
      else if (parameter === "f32") this.#view.setFloat32(at, value, true);
      else this.#view.setFloat64(at, value, true);
    }
  }

  /** Makes the maps of a launch whose values were written, where they are not those of the launch before. */
  encodeMaps(given: readonly Argument[]): void {
    for (const map of this.#maps) map.encode(given);
  }

  free(): void {
    for (const map of this.#maps) map.free();
    this.#block.free();
  }

  /** Two halves: a BigInt for each of a step's thousand addresses is garbage that shows. */
  #setAddress(slot: number, address: number): void {
    this.#view.setUint32(slot * slotBytes, address >>> 0, true);
    this.#view.setUint32(slot * slotBytes + 4, Math.floor(address / 2 ** 32), true);
  }

  #nameOf(index: number): string {
    return `Argument ${index} of kernel "${this.#kernel}" (${this.#parameters[index]})`;
  }
}
