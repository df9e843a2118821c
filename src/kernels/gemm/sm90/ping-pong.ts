/**
 * The ping-pong kernel: persistent and warp-specialised. A CTA computes several tiles. One thread loads all of their k-tiles through one
 * ring of stages, ahead of the consumers. Two consumer warpgroups have every other tile each: one multiplies while the other runs its
 * epilogue.
 *
 * Epilogues work on the accumulators' layout. A warp loads the operands of its own rows by TMA before the mainloop, and stores results by
 * TMA while it computes the next ones. So no warp waits for another one in an epilogue.
 */

import { loadsOf } from "../../../ir/index.js";
import { colsumOutputs } from "../../codegen/cuda/column-partials.js";
import { elementTypes } from "../../codegen/cuda/element-types.js";
import { expressionPrinter } from "../../codegen/cuda/expressions.js";
import { ldmatrixVec, stmatrixVec } from "../../codegen/cuda/intrinsics/mma.js";
import { tmaStore } from "../../codegen/cuda/intrinsics/tma.js";
import { setmaxnreg } from "../../codegen/cuda/intrinsics/wgmma.js";
import { KernelText } from "../../codegen/cuda/kernel-text.js";
import { type PreludeName, preludeOf } from "../../codegen/cuda/prelude.js";
import { narrowed, widenedElement } from "../../codegen/cuda/row-operands.js";
import type { Epilogue, Sm90Config } from "./configs.js";
import { printStages } from "./epilogue.js";
import { colsumRows } from "./epilogue-store.js";
import { countKTiles, loopsOverKTiles, selectProduct } from "./products.js";
import { maxStageBytes, smemAlignment } from "./smem-tiles.js";
import { box, ringBoxes, type StagedArray, stagedArrays, warpBytesOf } from "./staged-arrays.js";
import { kTileBytes, type Sm90Tile } from "./tiles.js";

/** Warps of the two consumer warpgroups. */
const consumerWarps = 8;

/** Two consumer warpgroups, and one of which a single thread loads. Registers are distributed among whole warpgroups. */
export const pingPongThreads = 32 * consumerWarps + 128;

/** A CTA of 384 threads starts with 168 registers per thread, and never gets more in total: 2 · 240 + 24 = 3 · 168. */
const [consumerRegisters, producerRegisters] = [240, 24];

/** With fewer stages, loads would wait for products. */
const minStages = 3;

/** Rows of tiles that CTAs visit together, column after column, so that they share operands in the L2 cache. */
const rasterRows = 8;

/** Shared memory: as many stages as the arrays of the epilogue leave room for. Undefined if these are too few. */
export function planPingPong(
  tile: Sm90Tile,
  arrays: readonly StagedArray[],
): { readonly stages: number; readonly sharedBytes: number } | undefined {
  const stageBytes = (tile.tileM + tile.tileN) * kTileBytes;
  const epilogueBytes = consumerWarps * warpBytesOf(arrays);
  const stages = Math.min(tile.stages, Math.floor((maxStageBytes - epilogueBytes) / stageBytes));
  if (stages < minStages) return undefined;
  const mbarriers = 2 * stages + 2 + consumerWarps;
  return { stages, sharedBytes: smemAlignment + stages * stageBytes + epilogueBytes + 8 * mbarriers };
}

/** True if the ping-pong kernel computes an epilogue: its operands and results have 16 bits, and column sums are of stored results. */
export function canPingPong(config: Pick<Sm90Config, "tile" | "resultDtype">, epilogue?: Epilogue): boolean {
  const arrays = stagedArrays(config, epilogue);
  if (!arrays || !planPingPong(config.tile, arrays)) return false;
  if (!epilogue) return true;
  const { kernel, gemmInput, forwarded = [] } = epilogue;
  const columns = new Set(colsumOutputs(kernel));
  return kernel.stages.every((stage) => {
    if (stage.kind !== "store" || !columns.has(stage.output)) return true;
    const inputs = loadsOf(stage.value).map(({ input }) => input);
    return (
      kernel.outputs[stage.output]?.dtype === "f32" &&
      inputs.every((input) => input !== gemmInput && forwarded[input] !== undefined)
    );
  });
}

/** The epilogue of a box of 16 × 64 elements, in C++. */
interface PrintedBox {
  readonly declarations: string;
  /** Declares registers for the operands and results of `rowCount` vectors. */
  readonly registers: string;
  /** Computes the results of the vector `next`, with its accumulators in `values`. */
  readonly lines: string;
  /** Adds the row `next` of the staged results to column sums. */
  readonly columnSums: readonly { readonly output: number; readonly lines: string }[];
}

function printBox(
  { resultDtype = "f32", biasDtype = "f32", hasBias }: Sm90Config,
  epilogue: Epilogue | undefined,
  arrays: readonly StagedArray[],
): PrintedBox {
  const text = new KernelText({ depth: 5, usesFastMath: true });
  const called = new Set<PreludeName>(["Vec", "dynamicSharedMemory"]);
  const { widen } = hasBias ? elementTypes[biasDtype] : {};
  if (widen) called.add(widen);
  const registers = arrays.flatMap(({ operand, result }) =>
    [operand, result].flatMap((parameter) =>
      parameter ? [`Vec<unsigned short, vecWidth> ${parameter.registers}[rowCount];`] : [],
    ),
  );
  if (arrays.some(({ result }) => result?.name === "c0")) {
    if (resultDtype === "bf16") text.line(`${text.call("narrowVec_bf16", "values", "resultC[next]")};`);
    else {
      text.line("#pragma unroll");
      const narrow = narrowed(text, resultDtype, "values[e]");
      text.line(`for (unsigned e = 0; e < vecWidth; e++) resultC[next].element[e] = ${narrow};`);
    }
  }
  const sums = new Set(epilogue && colsumOutputs(epilogue.kernel));
  const { stages = [], outputs = [] } = epilogue?.kernel ?? {};
  const ofElements = stages.filter((stage) => stage.kind === "store" && !sums.has(stage.output));
  if (epilogue) printStages(text, epilogue, ofElements, new Set(outputs.keys()));
  const columnSums = [...sums].map((output) => printColumnSum(epilogue as Epilogue, output));
  const work = text.fragment();
  for (const name of [...work.called, ...columnSums.flatMap((sum) => [...sum.called])]) called.add(name);
  return {
    ...{ declarations: preludeOf(called), registers: registers.join("\n        ") },
    ...{ lines: work.lines, columnSums },
  };
}

/** C++: adds a row to the sums of a lane's two columns. */
function printColumnSum(
  { kernel: { stages, inputs }, forwarded = [] }: Epilogue,
  output: number,
): { readonly output: number; readonly lines: string; readonly called: ReadonlySet<PreludeName> } {
  const text = new KernelText({ depth: 6, usesFastMath: true });
  const values = stages.flatMap((stage) =>
    stage.kind === "store" && stage.output === output ? [stage.value] : [],
  );
  const sources = new Set(values.flatMap(loadsOf).map(({ input }) => forwarded[input]));
  for (const source of sources) {
    const pair = `*reinterpret_cast<const Vec<unsigned short, 2>*>(staged_out${source} + at)`;
    text.line(`const Vec<unsigned short, 2> pair${source} = ${pair};`);
  }
  text.line("#pragma unroll");
  text.block("for (unsigned e = 0; e < 2; e++)", () => {
    const print = expressionPrinter(text, values, {
      load: ({ input }) => widenedElement(text, inputs[input] ?? "f32", `pair${forwarded[input]}`, "e"),
      scalar: (index) => `scalar${index}`,
      ...{ reduced: () => "", position: () => "", row: () => "" },
    });
    for (const value of values) text.line(`sums${output}[e] += ${print(value)};`);
  });
  return { output, ...text.fragment() };
}

/** The sections of the kernel, and its shared memory. */
export interface PingPongCode {
  readonly declarations: string;
  /** The PTX wrappers of the epilogue. */
  readonly intrinsics: readonly string[];
  readonly body: string;
  readonly stages: number;
  readonly sharedBytes: number;
}

export function printPingPong(config: Sm90Config, epilogue: Epilogue | undefined): PingPongCode {
  const arrays = stagedArrays(config, epilogue);
  const plan = arrays && planPingPong(config.tile, arrays);
  if (!arrays || !plan) throw new Error("This epilogue needs another tile. Call canPingPong first.");
  const printed = printBox(config, epilogue, arrays);
  const body = `${prologue(config, arrays)}${producer(config)}${consumer(config, arrays, printed)}`;
  const intrinsics = [setmaxnreg, tmaStore, stmatrixVec, ...(hasOperands(arrays) ? [ldmatrixVec] : [])];
  return { ...plan, declarations: printed.declarations, intrinsics, body };
}

const hasOperands = (arrays: readonly StagedArray[]): boolean => arrays.some(({ operand }) => operand);
const hasRing = (arrays: readonly StagedArray[]): boolean => arrays.some(({ operand }) => !operand);

/** Shared memory, mbarriers, and where a tile is. `turn`: a warpgroup may multiply. `loaded`: a warp's operands have arrived. */
const prologue = (config: Sm90Config, arrays: readonly StagedArray[]): string => `
  constexpr unsigned stageBytes = TileA::bytes + TileB::bytes, warpBytes = ${warpBytesOf(arrays)};
  unsigned char* const stageTiles = smem + (${smemAlignment} - reinterpret_cast<unsigned long long>(smem) % ${smemAlignment}) % ${smemAlignment};
  unsigned char* const staging = stageTiles + stages * stageBytes;
  Mbarrier* const full = reinterpret_cast<Mbarrier*>(staging + ${consumerWarps} * warpBytes);
  Mbarrier* const empty = full + stages;
  Mbarrier* const turn = empty + stages;${hasOperands(arrays) ? "\n  Mbarrier* const loaded = turn + 2;" : ""}
  const unsigned tilesM = (m + tileM - 1) / tileM, tilesN = (n + tileN - 1) / tileN, tiles = tilesM * tilesN;${countKTiles(config)}
  if (threadIdx.x < stages) {
    mbarrierInit(full + threadIdx.x, 1);
    mbarrierInit(empty + threadIdx.x, 4);
  }
  if (threadIdx.x < 2) mbarrierInit(turn + threadIdx.x, 4);${hasOperands(arrays) ? `\n  if (threadIdx.x < ${consumerWarps}) mbarrierInit(loaded + threadIdx.x, 1);` : ""}
  fenceMbarrierInit();
  __syncthreads();
  // Tiles in groups of ${rasterRows} rows of tiles, column after column.
  auto rowOf = [&](unsigned tile) {
    const unsigned firstRow = tile / (${rasterRows} * tilesN) * ${rasterRows}, rows = tilesM - firstRow;
    return (int)((firstRow + tile % (${rasterRows} * tilesN) % (rows < ${rasterRows} ? rows : ${rasterRows})) * tileM);
  };
  auto columnOf = [&](unsigned tile) {
    const unsigned rows = tilesM - tile / (${rasterRows} * tilesN) * ${rasterRows};
    return (int)(tile % (${rasterRows} * tilesN) / (rows < ${rasterRows} ? rows : ${rasterRows}) * tileN);
  };`;

/** The thread that loads the k-tiles of all tiles. */
const producer = (config: Sm90Config): string => {
  const { prefetchesB = false, products } = config;
  const stageTile = `unsigned char* const stageTile = stageTiles + stage * stageBytes;`;
  const prefetch = `
    const unsigned prefetched = kTiles < stages ? kTiles : stages;
    for (unsigned stage = 0; stage < prefetched; stage++) {
      mbarrierArriveExpectTx(full + stage, stageBytes);
      ${stageTile}
      ${products ? `${selectProduct(config, ["B"], "stage")}\n      ` : ""}TileB::load(stageTile + TileA::bytes, ${products ? "mapB, columnOf(cta), fromK" : "b, columnOf(cta), stage * tileK"}, 0, full + stage);
    }`;
  const [a, b, fromK] = products ? ["mapA", "mapB", "fromK"] : ["a", "b", "kTile * tileK"];
  const load = (operand: "A" | "B"): string =>
    operand === "A"
      ? `TileA::load(stageTile, ${a}, firstM, ${fromK}, 0, full + stage);`
      : `TileB::load(stageTile + TileA::bytes, ${b}, firstN, ${fromK}, 0, full + stage);`;
  const loadBoth = `mbarrierWait(empty + stage, parity);
        mbarrierArriveExpectTx(full + stage, stageBytes);`;
  const loads = prefetchesB
    ? `const bool isPrefetched = tile == cta && kTile < prefetched;
        if (!isPrefetched) {
        ${loadBoth}
        ${load("B")}
        }
        ${load("A")}`
    : `${loadBoth}
        ${load("A")}
        ${load("B")}`;
  return `
  if (threadIdx.x >= consumers) {
    setmaxnregDec<${producerRegisters}>();
    if (threadIdx.x > consumers) return;${prefetchesB ? prefetch : ""}
    gridDependencyWait();
    // In the first round of the ring, no stage has to be emptied: the phase before the first counts as complete.
    for (unsigned tile = cta, stage = 0, parity = 1; tile < tiles; tile += gridDim.x) {
      const int firstM = rowOf(tile), firstN = columnOf(tile);
      for (unsigned kTile = 0; kTile < kTiles; kTile++) {
        ${stageTile}${products ? `\n      ${selectProduct(config, ["A", "B"])}` : ""}
        ${loads}
        if (++stage == stages) {
          stage = 0;
          parity ^= 1;
        }
      }
    }
    return;
  }`;
};

/** A consumer warpgroup: its tiles one after the other. */
function consumer(config: Sm90Config, arrays: readonly StagedArray[], printed: PrintedBox): string {
  const { hasBias } = config;
  return `
  setmaxnregInc<${consumerRegisters}>();
  gridDependencyWait();
  // The shuffles tell the compiler that a warp's threads agree.
  const unsigned warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), warpgroup = warp / 4, lane = threadIdx.x % 32;
  constexpr unsigned mmaM = tileM / 64, mmaN = tileN;
  unsigned char* const warpStaging = staging + warp * warpBytes;
  // ldmatrix and stmatrix take the address of a row of 16 bytes from each lane: rows 0 to 15 of one column of chunks, then of the next.
  const unsigned fragment = lane % 16 * 128 + ((lane / 16 ^ lane % 8) << 4);${hasBias ? loadBias(config) : ""}
  unsigned stage = warpgroup * kTiles % stages, parity = warpgroup * kTiles / stages % 2, round = 0;
#pragma unroll 1
  for (unsigned tile = cta + warpgroup * gridDim.x; tile < tiles; tile += 2 * gridDim.x, round ^= 1) {
    const int warpM = rowOf(tile) + warp % 4 * ${box.rows}, firstN = columnOf(tile);${hasOperands(arrays) ? loadOperands(arrays) : ""}${
      hasBias
        ? `
    float biases[tileN / ${box.columns}][16];
    loadBias(biases[0], firstN);`
        : ""
    }
    // The first products of a tile replace what these hold.
    float acc[mmaM][mmaN / 2];
    // The other warpgroup has waited for all k-tiles before this tile. So the parities of this warpgroup are those of the next phases.
    mbarrierWait(turn + warpgroup, round ^ warpgroup ^ 1);
    Mbarrier* previous = empty;${loopsOverKTiles(config, mainloop)}
    if (lane == 0) mbarrierArrive(turn + (warpgroup ^ 1));
    wgmmaWait<0>();
    if (lane == 0) mbarrierArrive(previous);
    // The stages of the other warpgroup's next tile.
    stage += kTiles;
    parity ^= stage / stages % 2;
    stage %= stages;
#pragma unroll
    for (unsigned i = 0; i < mmaM; i++) {
#pragma unroll
      for (unsigned e = 0; e < mmaN / 2; e++) fenceOperand(acc[i][e]);
    }${hasOperands(arrays) ? "\n    mbarrierWait(loaded + warp, round);" : ""}
#pragma unroll
    for (unsigned half = 0; half < tileN / ${box.columns}; half++) {${
      hasBias
        ? `
      if (half + 1 < tileN / ${box.columns}) loadBias(biases[half + 1], firstN + (half + 1) * ${box.columns});`
        : ""
    }
#pragma unroll
      for (unsigned i = 0; i < mmaM; i++) {${storeBox(config, arrays, printed)}
      }
    }
  }
  if (lane == 0) bulkWaitRead<0>();`;
}

const mainloop: Parameters<typeof loopsOverKTiles>[1] = ({ from, to, steps }) => `
#pragma unroll 1
    for (unsigned kTile = ${from}; kTile < ${to}; kTile++) {
      mbarrierWait(full + stage, parity);
      const TileAddress tileA = tileAddress(stageTiles + stage * stageBytes);
      const TileAddress tileB = advance(tileA, TileA::bytes);
      wgmmaFence();
#pragma unroll
      for (unsigned kStep = 0; kStep < ${steps}; kStep++) {
#pragma unroll
        for (unsigned i = 0; i < mmaM; i++) {
          wgmmaSs<Element, mmaN, TileA::isKMajor, TileB::isKMajor>(
              acc[i], advance(tileA, TileA::offset(64 * i, kStep)), advance(tileB, TileB::offset(0, kStep)),
              kTile > 0 || kStep > 0);
        }
      }
      wgmmaCommit();
      // Once the previous k-tile's wgmmas are complete, its stage is empty.
      wgmmaWait<1>();
      if (kTile > 0 && lane == 0) mbarrierArrive(previous);
      previous = empty + stage;
      if (++stage == stages) {
        stage = 0;
        parity ^= 1;
      }
    }`;

/** The bias of a lane's columns in a box. */
function loadBias({ biasDtype = "f32" }: Sm90Config): string {
  const { widen = "" } = elementTypes[biasDtype];
  const pair = biasDtype === "f32" ? "float2" : "ushort2";
  return `
  auto loadBias = [&](float (&to)[16], int firstColumn) {
#pragma unroll
    for (unsigned j = 0; j < 8; j++) {
      const int column = firstColumn + j * 8 + lane % 4 * 2;
      to[2 * j] = to[2 * j + 1] = 0;
      if (column >= n) continue;
      const ${pair} loadedBias = *reinterpret_cast<const ${pair}*>(bias + column);
      to[2 * j] = ${widen}(loadedBias.x);
      to[2 * j + 1] = ${widen}(loadedBias.y);
    }
  };`;
}

/** The lane that has stored a warp's boxes loads the operands of its next ones, when no store reads them any more. */
function loadOperands(arrays: readonly StagedArray[]): string {
  const operands = arrays.flatMap(({ operand, offset }) => (operand ? [{ ...operand, offset }] : []));
  const loads = operands.map(
    ({ name, offset }) =>
      `tmaLoad(warpStaging + ${offset} + at * ${box.bytes}, &${name}, firstN + at / mmaM * ${box.columns}, warpM + at % mmaM * 64, 0, loaded + warp);`,
  );
  return `
    __syncwarp();
    if (lane == 0) {
      constexpr unsigned boxes = mmaM * (tileN / ${box.columns});
      bulkWaitRead<0>();
      mbarrierArriveExpectTx(loaded + warp, ${operands.length * box.bytes} * boxes);
      for (unsigned at = 0; at < boxes; at++) {
        ${loads.join("\n        ")}
      }
    }`;
}

/** The epilogue of a box. */
function storeBox({ hasBias }: Sm90Config, arrays: readonly StagedArray[], printed: PrintedBox): string {
  const places = arrays.flatMap(({ operand, result, offset }) => {
    const at = operand ? "at" : `at % ${ringBoxes}`;
    return [operand, result].flatMap((parameter) =>
      parameter
        ? [`unsigned char* const staged_${parameter.name} = warpStaging + ${offset} + ${at} * ${box.bytes};`]
        : [],
    );
  });
  const forEach = (lines: readonly string[]): string =>
    lines.length === 0
      ? ""
      : `
#pragma unroll
        for (unsigned next = 0; next < rowCount; next++) {
          ${lines.join("\n          ")}
        }`;
  const address = (name: string): string => `staged_${name} + (fragment ^ next << 5)`;
  const operands = arrays.flatMap(({ operand }) => (operand ? [operand] : []));
  const results = arrays.flatMap(({ result }) => (result ? [result] : []));
  const value = `acc[i][half * 32 + next * 8 + e]${hasBias ? " + biases[half][next * 4 + e / 4 * 2 + e % 2]" : ""}`;
  return `
        constexpr unsigned vecWidth = 8, rowCount = ${box.columns / 16};
        const unsigned at = half * mmaM + i;
        const int firstRow = warpM + i * 64, firstColumn = firstN + half * ${box.columns};
        ${places.join("\n        ")}
        ${printed.registers}${forEach(operands.map(({ name, registers }) => `ldmatrixVec(${registers}[next], ${address(name)});`))}
#pragma unroll
        for (unsigned next = 0; next < rowCount; next++) {
          float values[vecWidth];
#pragma unroll
          for (unsigned e = 0; e < vecWidth; e++) values[e] = ${value};
${printed.lines}
        }${
          hasRing(arrays)
            ? `
        // Of the boxes that this warp has stored before, only the last one may still be read.
        if (lane == 0) bulkWaitRead<${ringBoxes - 1}>();
        __syncwarp();`
            : ""
        }${forEach(results.map(({ name, registers }) => `stmatrixVec(${address(name)}, ${registers}[next]);`))}
        fenceProxyAsync();
        __syncwarp();
        if (lane == 0) {
          ${results.map(({ name }) => `tmaStore(&${name}, staged_${name}, firstColumn, firstRow, 0);`).join("\n          ")}
          bulkCommit();
        }${printed.columnSums.map(storeColumnSum).join("")}`;
}

/** A lane sums two columns of a box, in the order of its rows, as the other tiles do. */
const storeColumnSum = ({ output, lines }: PrintedBox["columnSums"][number]): string => `
        if (firstRow < m) {
          float sums${output}[2] = {};
          auto addRow = [&](unsigned row) {
            const unsigned at = row * 128 + ((lane / 4 ^ row % 8) << 4) + lane % 4 * 4;
${lines}
          };
          if (firstRow + ${colsumRows} <= m) {
#pragma unroll
            for (unsigned row = 0; row < ${colsumRows}; row++) addRow(row);
          } else {
#pragma unroll 1
            for (unsigned row = 0; row < (unsigned)(m - firstRow); row++) addRow(row);
          }
          const int column = firstColumn + lane * 2;
          float* const to = out${output} + (long long)(firstRow / ${colsumRows}) * n + column;
          if (column < n) *reinterpret_cast<float2*>(to) = make_float2(sums${output}[0], sums${output}[1]);
        }`;
