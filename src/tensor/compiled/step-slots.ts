/** Persistent memory of a compiled step for its inputs and results. */

import { dtypes } from "../../ir/index.js";
import { contiguousStrides, type DeviceArray, sizeOf } from "../../ops/index.js";
import type { Region, Runtime, Storage } from "../../runtime/index.js";

/** Allocates persistent memory for arrays of these shapes. `onRegion` gets the region, to release it with the plan. */
export function placeSlots(
  runtime: Runtime,
  name: string,
  arrays: readonly Pick<DeviceArray, "shape" | "dtype">[],
  onRegion: (region: Region) => void,
): DeviceArray[] {
  const sizes = arrays.map(({ shape, dtype }) => sizeOf(shape) * dtypes[dtype].bytes);
  const placements = sizes.flatMap((size, index) => (size > 0 ? [{ name: `${name} ${index}`, size }] : []));
  const storages: Storage[] = [];
  if (placements.length > 0) {
    const region = runtime.outsideTrace(() => {
      const placed = runtime.persistent.place("scalars", name, placements);
      // A capture copies results before the first run has stored them.
      for (const storage of placed.storages) runtime.fill(storage, 0);
      return placed;
    });
    onRegion(region);
    storages.push(...region.storages);
  }
  return arrays.map(({ shape, dtype }, index) => ({
    shape,
    strides: contiguousStrides(shape),
    dtype,
    storage: (sizes[index] ?? 0) > 0 ? storages.shift() : undefined,
  }));
}
