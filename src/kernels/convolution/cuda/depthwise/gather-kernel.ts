/**
 * The CUDA source of a depthwise convolution, forward or of the input's gradient. A thread computes `run` neighbouring results of `vector`
 * channels: it loads each element that they meet once for each tap of the other axis. Neighbouring threads have neighbouring memory: the
 * channels if these are last, and the width if they are first. So a run is along the width or the height.
 *
 * Each result is summed in the order of its taps, whatever the config is.
 */

import type { KernelSource, Parameter } from "../../../../driver/index.js";
import { cudaKernel } from "../../../codegen/cuda/cuda-function.js";
import type { ConvolutionEpilogue } from "../../problem.js";
import { constructDivisor, declareDivisor, divisorParameters } from "../divisor.js";
import { type ConvolutionDtype, typeOf } from "../element.js";
import { applyEpilogue, declareEpilogue, epilogueParameters } from "../epilogue.js";
import { declareOperands } from "./operands.js";
import { declareDivideExactly, elementAt, originOf, overlapsOf, type WindowSizes } from "./tap-overlaps.js";

/** Which code is printed. */
export interface GatherVariant {
  readonly direction: "forward" | "input-gradient";
  readonly isChannelsLast: boolean;
  readonly image: ConvolutionDtype;
  readonly filter: ConvolutionDtype;
  readonly result: ConvolutionDtype;
  readonly rows: WindowSizes;
  readonly columns: WindowSizes;
  /** Neighbouring channels of a thread; 1 if they are first. */
  readonly vector: number;
  /** Neighbouring threads along the channels; 1 if they are first. */
  readonly lanes: number;
  readonly run: number;
  readonly hasBias: boolean;
  readonly epilogue?: ConvolutionEpilogue | undefined;
  /** In the epilogue. */
  readonly usesFastMath: boolean;
  readonly access: "out" | "partial-out";
}

export const gatherThreads = 256;
/** With more floats in registers, nvcc 13 for sm_90 leaves room for two CTAs on an SM instead of three. */
const maxFloats = 40;

/** A tile is the `run` results that a thread computes together. Channels-last, a thread computes `tilesPerThread` tiles. */
const sizes = {
  last: ["channels", "imageHeight", "imageWidth", "resultWidth", "tiles", "tilesPerThread"],
  first: ["imageHeight", "imageWidth", "resultHeight", "resultWidth", "tiles"],
} as const;

/** The tiles along the faster and the slower axis of an image, and the images of a batch. */
const divisors = { last: ["perLine", "perImage"], first: ["perLine", "perImage", "perBatch"] } as const;

export type GatherSizes = Readonly<Record<(typeof sizes)["last" | "first"][number], number>>;

export function gatherParameters({
  isChannelsLast,
  hasBias,
  access,
  epilogue,
}: Pick<GatherVariant, "isChannelsLast" | "hasBias" | "access" | "epilogue">): Readonly<
  Record<string, Parameter>
> {
  const layout = isChannelsLast ? "last" : "first";
  return {
    ...{ image: "in", filter: "in", ...(hasBias && { bias: "in" }), result: access },
    ...Object.fromEntries(sizes[layout].map((name): [string, Parameter] => [name, "i32"])),
    ...divisorParameters(divisors[layout]),
    ...epilogueParameters(epilogue),
  };
}

export function gatherKernel(variant: GatherVariant): KernelSource {
  const { direction, isChannelsLast, image, filter, result, vector, epilogue } = variant;
  return cudaKernel({
    name: `convolution.depthwise.${direction}.${image}`,
    parameters: gatherParameters(variant),
    elements: typeOf(image),
    pointers: { result: typeOf(result), filter: typeOf(filter), bias: typeOf(filter) },
    threads: gatherThreads,
    blocksPerSm: floatsOf(variant) <= maxFloats ? 3 : 2,
    declarations: `${declareOperands({
      Image: { dtype: image, vector },
      Filter: { dtype: filter, vector: 1 },
      Result: { dtype: result, vector },
    })}
${declareDivisor}
${declareDivideExactly}
${declareEpilogue(epilogue, variant.usesFastMath)}
static constexpr unsigned threads = ${gatherThreads}, vector = ${vector}, ${isChannelsLast ? `lanes = ${variant.lanes}, ` : ""}run = ${variant.run};
static constexpr unsigned kernelHeight = ${variant.rows.kernel}, kernelWidth = ${variant.columns.kernel}, taps = kernelHeight * kernelWidth;`,
    body: isChannelsLast ? channelsLastBody(variant) : channelsFirstBody(variant),
  });
}

/** The taps of a CTA's channels are in shared memory, channels last. */
function channelsLastBody(variant: GatherVariant): string {
  const { direction, rows, columns, vector } = variant;
  const groups = tapGroups(variant);
  const [whole] = groups;
  const isUnrolled =
    groups.length === 1 &&
    rows.kernel * Math.max(columns.kernel, countLoads(variant, whole)) * vector <= maxUnrolledLoads;
  return `
  __shared__ __align__(16) float filterTile[taps * lanes * vector];
  ${divisors.last.map(constructDivisor).join("\n  ")}
  const unsigned channelBlocks = ((unsigned)channels + lanes * vector - 1) / (lanes * vector);
  const unsigned firstChannel = blockIdx.x % channelBlocks * (lanes * vector);
#pragma unroll 1
  for (unsigned index = threadIdx.x; index < taps * lanes * vector; index += threads) {
    if (firstChannel * taps + index >= channels * taps) break;
    float value[1];
    Filter::load(value, filter + firstChannel * taps + index);
    filterTile[index % taps * (lanes * vector) + index / taps] = value[0];
  }
  __syncthreads();
  const unsigned lane = threadIdx.x % lanes, channel = firstChannel + lane * vector;
  if (channel >= (unsigned)channels) return;
  auto multiply = [](float (&sum)[vector], const float (&values)[vector], const float* tap) {
#pragma unroll
    for (unsigned k = 0; k < vector; k++) sum[k] = fmaf(tap[k], values[k], sum[k]);
  };
${variant.hasBias ? loadBias : ""}
  constexpr unsigned tilesPerPass = threads / lanes;
  unsigned tile = blockIdx.x / channelBlocks * (tilesPerPass * tilesPerThread) + threadIdx.x / lanes;
#pragma unroll 1
  for (unsigned pass = 0; pass < (unsigned)tilesPerThread && tile < (unsigned)tiles; pass++, tile += tilesPerPass) {
    const unsigned resultLine = perLine.divide(tile), firstColumn = (tile - resultLine * perLine.divisor) * run;
    const unsigned batch = perImage.divide(resultLine), row = resultLine - batch * perImage.divisor;
    const int firstOrigin = ${originOf(direction, columns, "firstColumn")};
    float sums[run][vector] = {};
#pragma unroll ${isUnrolled ? rows.kernel : 1}
    for (unsigned i = 0; i < kernelHeight; i++) {
      const int imageRow = ${elementAt(direction, rows, "row", "i")};
      const bool isRow = (unsigned)imageRow < (unsigned)imageHeight;
      int origin = firstOrigin;
      const Image::Element* elements =
          image + (long long)(((int)batch * imageHeight + imageRow) * imageWidth + origin) * channels + channel;
      const float* rowTaps = filterTile + i * (kernelWidth * lanes * vector) + lane * vector;
${groups.map((group, index) => productsOf(variant, group, index === groups.length - 1)).join("\n")}
    }
    const unsigned firstResult = (resultLine * resultWidth + firstColumn) * channels + channel;
#pragma unroll
    for (unsigned r = 0; r < run; r++) {
      if (firstColumn + r >= (unsigned)resultWidth) break;
${finish(variant)}
      Result::store(result + (firstResult + r * channels), sums[r]);
    }
  }`;
}

/** Taps of a row, in order: `count` times `taps` of them. */
interface TapGroup {
  readonly taps: number;
  readonly count: number;
}

/** The code of a long row of taps is a loop. Of an input gradient, all groups begin with the same residue of the stride. */
function tapGroups({ direction, columns: { kernel, stride } }: GatherVariant): readonly TapGroup[] {
  const unit = direction === "input-gradient" ? stride : 1;
  const taps = Math.ceil(maxGroupTaps / unit) * unit;
  if (kernel <= taps) return [{ taps: kernel, count: 1 }];
  const rest = kernel % taps;
  return [{ taps, count: Math.floor(kernel / taps) }, ...(rest > 0 ? [{ taps: rest, count: 1 }] : [])];
}

/** Taps of a group: a longer row of taps is a loop over groups. */
export const maxGroupTaps = 8;

/** C++: adds the products of a row of the image with a group of taps. */
function productsOf(
  { direction, columns, run }: GatherVariant,
  { taps, count }: TapGroup,
  isLast: boolean,
): string {
  const elements = overlapsOf(direction, { ...columns, kernel: taps }, run).map(
    ({ offset, products }) => `      {
        float values[vector] = {};
        if (isRow && (unsigned)(origin + ${offset}) < (unsigned)imageWidth) Image::load(values, elements + (long long)${offset} * channels);
${products.map(({ result, tap }) => `        multiply(sums[${result}], values, rowTaps + ${tap} * lanes * vector);`).join("\n")}
      }`,
  );
  if (isLast && count === 1) return elements.join("\n");
  const step = (taps * columns.dilation) / (direction === "input-gradient" ? -columns.stride : 1);
  return `#pragma unroll 1
      for (unsigned group = 0; group < ${count}; group++) {
${elements.join("\n")}
        origin += ${step};
        elements += (long long)${step} * channels;
        rowTaps += ${taps} * lanes * vector;
      }`;
}

function countLoads({ direction, columns, run }: GatherVariant, group: TapGroup | undefined): number {
  return overlapsOf(direction, { ...columns, kernel: group?.taps ?? 1 }, run).length;
}

/** The floats of sums and taps that a thread has at once. Channels-first, loads of many elements are in flight too. */
function floatsOf(variant: GatherVariant): number {
  const { isChannelsLast, run, rows, columns, vector } = variant;
  const [group] = tapGroups(variant);
  return isChannelsLast ? (run + (group?.taps ?? 0)) * vector : run + 2 * rows.kernel * columns.kernel;
}

/** A thread has all taps of one channel in registers, unless rows of taps are long: then it loads each tap where it needs it. */
function channelsFirstBody(variant: GatherVariant): string {
  const { direction, rows, columns, run } = variant;
  const isRegular = direction === "forward" || columns.stride === 1;
  const keepsTaps = columns.kernel <= maxGroupTaps;
  const product = (result: number, tap: number): string => {
    const inChannel = `${tap} * kernelWidth + j`;
    const value = keepsTaps ? `filterTaps[${inChannel}][0]` : "tap[0]";
    const load = keepsTaps ? "" : `      Filter::load(tap, filter + channel * taps + ${inChannel});\n`;
    return `${load}      sums[${result}][0] = fmaf(${value}, values[0], sums[${result}][0]);`;
  };
  const step = direction === "forward" ? columns.dilation : -columns.dilation;
  const products = overlapsOf(direction, rows, run).map(
    ({ offset, products }) => `  {
    const bool isRow = (unsigned)(origin + ${offset}) < (unsigned)imageHeight;
    const Image::Element* const row = elements + (long long)${offset} * imageWidth;
#pragma unroll ${Math.min(maxGroupTaps, columns.kernel)}
    for (unsigned j = 0; j < kernelWidth; j++) {
      const int imageColumn = ${elementAt(direction, columns, "column", "j")};
      float values[1] = {}${keepsTaps ? "" : ", tap[1]"};
      if (isRow && (unsigned)imageColumn < (unsigned)imageWidth) Image::load(values, row + ${isRegular ? `(int)j * ${step}` : "imageColumn"});
${products.map(({ result, tap }) => product(result, tap)).join("\n")}
    }
  }`,
  );
  return `
  ${divisors.first.map(constructDivisor).join("\n  ")}
  const unsigned tile = blockIdx.x * threads + threadIdx.x;
  if (tile >= (unsigned)tiles) return;
  const unsigned tileLine = perLine.divide(tile), column = tile - tileLine * perLine.divisor;
  const unsigned plane = perImage.divide(tileLine), firstRow = (tileLine - plane * perImage.divisor) * run;
  const unsigned channel = plane - perBatch.divide(plane) * perBatch.divisor;
${keepsTaps ? loadTaps : ""}
${variant.hasBias ? loadBias : ""}
  const int origin = ${originOf(direction, rows, "firstRow")};
  const Image::Element* const elements =
      image + (long long)((int)plane * imageHeight + origin) * imageWidth + ${isRegular ? `(${elementAt(direction, columns, "column", "0")})` : "0"};
  float sums[run][vector] = {};
${products.join("\n")}
  const unsigned firstResult = (plane * resultHeight + firstRow) * resultWidth + column;
#pragma unroll
  for (unsigned r = 0; r < run; r++) {
    if (firstRow + r >= (unsigned)resultHeight) break;
${finish(variant)}
    Result::store(result + (firstResult + r * resultWidth), sums[r]);
  }`;
}

/** The maximum of floats in registers, elements or taps, for which rows of taps are unrolled. */
const maxUnrolledLoads = 48;

const loadBias = `
  float biases[vector][1];
#pragma unroll
  for (unsigned k = 0; k < vector; k++) Filter::load(biases[k], bias + channel + k);`;

const loadTaps = `
  float filterTaps[taps][1];
#pragma unroll
  for (unsigned tap = 0; tap < taps; tap++) Filter::load(filterTaps[tap], filter + channel * taps + tap);`;

/** C++: adds the bias, and applies the epilogue. */
function finish({ hasBias, epilogue }: GatherVariant): string {
  if (!hasBias && !epilogue) return "";
  return `#pragma unroll
      for (unsigned k = 0; k < vector; k++) sums[r][k] = ${applyEpilogue(epilogue, hasBias ? "sums[r][k] + biases[k][0]" : "sums[r][k]")};`;
}
