/** The text of products by warpgroups: tiles in shared memory, which the tensor cores read by themselves. */

import type { KernelSource, Parameter } from "../../../driver/index.js";
import { cudaKernel } from "../../cuda-function.js";
import { elementTypes } from "../../cuda-printer/element-types.js";
import { preludeOf } from "../../cuda-printer/prelude.js";
import { chooseProduct, localsOf, type ProductLocal } from "../choose-product.js";
import type { AccessToC } from "../problem.js";
import { bodyByRegisters, bytesByRegisters, sharingOfTerms, threadsByRegisters } from "./by-registers.js";
import { loadingFours, multiplicationByWarps, storingByWarps } from "./by-warps.js";
import { type PrintedFinish, printFinish } from "./finish.js";
import { type Finish, isByRegisters, isByWarps, type WarpgroupForm, warpgroupCapability } from "./form.js";
import { elements, instructionsFor } from "./instructions.js";
import { beginning, mostTileBytes, placing, sides, turnedTiles } from "./tiles.js";

/** What a kernel knows of each of its products besides its operands; nothing of a C that it does not store. */
function figuresFor(finish: Finish | undefined): readonly string[] {
  return ["m", "n", "k", "aBatch", "bBatch", ...(storesResult(finish) ? ["cStride", "cBatch"] : [])];
}

/** What else the maps of its operands are made of. */
const mapFigures = ["aStride", "bStride", "batch"] as const;

const storesResult = (finish: Pick<Finish, "keepsResult"> | undefined): boolean =>
  !finish || finish.keepsResult;

/**
 * The parameters of a kernel, in their order: all that there is of the first product, then of the second, each with the
 * product's number behind its name; then what its finish takes. `first` is the first of the blocks that work on a product.
 */
export function warpgroupParameters(
  { hasBias }: WarpgroupForm,
  accesses: readonly AccessToC[],
  finish?: Finish,
): Readonly<Record<string, Parameter>> {
  const parameters: Record<string, Parameter> = {};
  for (const [index, access] of accesses.entries()) {
    Object.assign(parameters, { [`a${index}`]: "in", [`b${index}`]: "in" });
    if (storesResult(finish)) parameters[`c${index}`] = access;
    if (hasBias) parameters[`bias${index}`] = "in";
    for (const figure of [...figuresFor(finish), ...mapFigures]) parameters[`${figure}${index}`] = "i32";
    if (hasBias) parameters[`biasBatch${index}`] = "i32";
    if (index > 0) parameters[`first${index}`] = "u32";
  }
  return { ...parameters, ...(finish && printFinish(finish).parameters) };
}

/** The sums of a warpgroup: some pieces of 64 rows, and so many columns. */
const multiplicationFor = ({ tile: { rows, columns, down, across } }: WarpgroupForm): string => `
  constexpr unsigned groupsAcross = ${across}, down = ${rows / 64 / down}, width = ${columns / across};  const unsigned group = threadIdx.x / 128, top = group / groupsAcross * (64 * down), side = group % groupsAcross * width;
  float sums[down][width / 2];
#pragma unroll
  for (unsigned i = 0; i < down; i++) {
#pragma unroll
    for (unsigned e = 0; e < width / 2; e++) {
      sums[i][e] = 0;
      settle(sums[i][e]);
    }
  }
  for (unsigned step = 0; step < steps; step++) {
    const unsigned stage = step % stages;
    awaitGate(full + stage, step / stages % 2);
    const unsigned char *left = tiles + stage * (Left::bytes + Right::bytes), *right = left + Left::bytes;
    if constexpr (Right::isTurned) {
      unsigned char* const to = turned + step % ${turnedTiles} * Right::bytes;
      Right::turn(to, right);
      right = to;
      publishStores();
      meetThreads(1, consumers);
    }
    beginProducts();
#pragma unroll
    for (unsigned part = 0; part < 4; part++) {
#pragma unroll
      for (unsigned i = 0; i < down; i++) {
        multiplyTiles<Element, width, Left::liesAlong, Right::liesAlong>(
            sums[i], Left::at(left, top + 64 * i, part), Right::at(right, side, part));
      }
    }
    endProducts();
    // With the last step's products made, its tile is free.
    awaitProducts<1>();
    if (step > 0 && threadIdx.x % 32 == 0) passGate(free + (step - 1) % stages);
  }
  awaitProducts<0>();
  meetThreads(1, consumers);`;

/**
 * Each warp turns its own 16 rows through shared memory, so that a thread has neighbours of a row to store: the same ones of each.
 * What a finish reads of some rows is on its way before the first of them is stored; the compiler doesn't know that the two
 * are apart.
 */
function storing({ hasBias, resultDtype = "f32" }: WarpgroupForm, finish: PrintedFinish | undefined): string {
  const { type, narrow } = elementTypes[resultDtype];
  const biases = "*reinterpret_cast<const float4*>(bias + product * biasBatch + column)";
  const four = [0, 1, 2, 3].map((e) => (narrow ? `${narrow}(values[${e}])` : `values[${e}]`));
  const [vector, make] = resultDtype === "f32" ? ["float4", "make_float4"] : ["ushort4", "make_ushort4"];
  const plain = `
        *reinterpret_cast<${vector}*>(result + (long long)line * cStride) =
            ${make}(${four.join(", ")});`;
  const fetching = `
      ${finish?.held}
#pragma unroll
      for (unsigned next = 0; next < rowsAtOnce; next++) {
        const int line = (int)(begin + next * apart);
        const long long place = firstPlace + (long long)(line <= last ? line : last) * n;
        ${finish?.fetches}
      }`;
  return `
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  constexpr unsigned pack = 4, stride = width + 8, perRow = width / pack, apart = 32 / perRow, rowsAtOnce = 4;
  float* const own = reinterpret_cast<float*>(tiles) + warp * (16 * stride);
  const unsigned along = lane % perRow * pack;
  const int column = firstColumn + side + along;
  const float4 biases = ${hasBias ? `column < n ? ${biases} : ` : ""}make_float4(0, 0, 0, 0);
#pragma unroll
  for (unsigned i = 0; i < down; i++) {
    __syncwarp();
#pragma unroll
    for (unsigned e = 0; e < width / 2; e += 2) {
      float* const to = own + (lane / 4 + e / 2 % 2 * 8) * stride + e / 4 * 8 + lane % 4 * 2;
      *reinterpret_cast<float2*>(to) = make_float2(sums[i][e], sums[i][e + 1]);
    }
    __syncwarp();
    const int firstLine = firstRow + top + 64 * i + warp % 4 * 16 + lane / perRow;
    if (column >= n) continue;
    // Products of 64 bits are made once, and not for every row.
    const int last = m - 1 - firstLine;
    ${finish ? "const long long firstPlace = (long long)firstLine * n + column;" : ""}
    ${storesResult(finish) ? `${type}* const result = c + product * cBatch + (long long)firstLine * cStride + column;` : ""}
#pragma unroll 1
    for (unsigned begin = 0; begin < 16; begin += rowsAtOnce * apart) {${finish?.fetches ? fetching : ""}
#pragma unroll
      for (unsigned next = 0; next < rowsAtOnce; next++) {
        const int line = (int)(begin + next * apart);
        if (line > last) break;
        const float4 four = *reinterpret_cast<const float4*>(own + (lane / perRow + line) * stride + along);
        const float values[pack] = {four.x + biases.x, four.y + biases.y, four.z + biases.z, four.w + biases.w};
        ${finish ? "const long long place = firstPlace + (long long)line * n;" : ""}
${finish ? `${finish.keepsResult ? plain : ""}\n${finish.lines}` : plain}
      }
    }
  }`;
}

/** One kernel for products of one form, with what each does to its C; or for one product and its finish. */
export function warpgroupSource(
  form: WarpgroupForm,
  accesses: readonly AccessToC[],
  finish?: Finish,
): KernelSource {
  const { element, tile, isAlong, resultDtype = "f32" } = form;
  const { rows, columns, down, across } = tile;
  const narrow = elementTypes[resultDtype].narrow;
  const printed = finish && printFinish(finish, storesResult(finish) && narrow ? [narrow] : []);
  const rounding = !finish && narrow ? preludeOf(new Set([narrow])) : "";
  const [byWarps, byRegisters] = [isByWarps(form), isByRegisters(form)];
  const consumers = 128 * down * across;
  const { stages, sharedBytes } = memoryFor(form);
  const declarations = `
${printed?.declarations ?? rounding}${instructionsFor(form)}
typedef ${elements[element].name} Element;
static constexpr unsigned tileRows = ${rows}, tileColumns = ${columns}, stages = ${stages}, consumers = ${consumers};
static constexpr bool turnsFloats = ${turnsFloats(form)};
${sides}
typedef Side<${isAlong.a}, tileRows> Left;
typedef Side<${isAlong.b}, tileColumns> Right;${byWarps ? loadingFours : ""}`;
  return cudaKernel({
    ...{ name: `product_${element}_warpgroup`, elements: "float", onlyFor: warpgroupCapability },
    ...{ threads: byRegisters ? threadsByRegisters : consumers + 32, sharedBytes, declarations },
    ...(byRegisters && { cluster: 2, isAlone: true }),
    parameters: warpgroupParameters(form, accesses, finish),
    pointers: { ...printed?.pointers, ...pointersToResults(form, accesses.length) },
    maps: mapsOf(form, accesses.length),
    body: [
      chooseProduct(localsFor(form, finish), accesses.length),
      `  launchedMemory(launched, ${sharedBytes});`,
      ...(byRegisters ? [sharingOfTerms, placing, bodyByRegisters] : [beginning, "\n"]),
      ...(byWarps ? [multiplicationByWarps, storingByWarps] : []),
      ...(byWarps || byRegisters ? [] : [multiplicationFor(form), storing(form, printed)]),
    ].join(""),
  });
}

/** Are floats turned round in shared memory that don't lie along their terms? */
const turnsFloats = (form: WarpgroupForm): boolean => form.element === "tf32" && !isByWarps(form);

/** How many tiles of each side are there at a time, and how much memory a block has for them and for turning C. */
function memoryFor(form: WarpgroupForm): { stages: number; sharedBytes: number } {
  const { tile, isAlong } = form;
  if (isByRegisters(form)) return { stages: tile.stages, sharedBytes: bytesByRegisters(tile) };
  const { rows, columns, down, across } = tile;
  const turnedBytes = turnsFloats(form) && !isAlong.b ? turnedTiles * columns * 128 : 0;
  const stageBytes = (rows + columns) * 128;
  const stages = Math.min(tile.stages, Math.floor((mostTileBytes - turnedBytes) / stageBytes));
  const tileBytes = stages * stageBytes + turnedBytes + 2 * stages * 8;
  const turningBytes = 4 * down * across * 16 * (columns / across + 8) * 4;
  return { stages, sharedBytes: 1024 + Math.max(tileBytes, turningBytes) };
}

/** What C's parameters point to. */
function pointersToResults({ resultDtype = "f32" }: WarpgroupForm, products: number): Record<string, string> {
  const { type } = elementTypes[resultDtype];
  return Object.fromEntries(Array.from({ length: products }, (_, index) => [`c${index}`, type]));
}

/** Operands are maps, of which boxes of 128 bytes across are brought. */
function mapsOf({ element, tile, isAlong }: WarpgroupForm, products: number) {
  const across = 128 / (element === "tf32" ? 4 : 2);
  const mapOf = (side: "a" | "b", size: string, rows: number, index: number) => {
    const [columns, lines] = isAlong[side] ? ["k", size] : [size, "k"];
    return {
      dtype: element === "tf32" ? ("f32" as const) : element,
      ...{ columns: `${columns}${index}`, rows: `${lines}${index}`, rowStride: `${side}Stride${index}` },
      ...{ matrices: `batch${index}`, matrixStride: `${side}Batch${index}` },
      box: { columns: across, rows: isAlong[side] ? rows : across },
    };
  };
  const maps: Record<string, ReturnType<typeof mapOf>> = {};
  for (let index = 0; index < products; index++) {
    maps[`a${index}`] = mapOf("a", "m", tile.rows, index);
    maps[`b${index}`] = mapOf("b", "n", tile.columns, index);
  }
  return maps;
}

/** What a block knows of its product. */
function localsFor(
  { hasBias, resultDtype = "f32" }: WarpgroupForm,
  finish?: Finish,
): readonly ProductLocal[] {
  return [
    ...localsOf("const MatrixMap*", ["a", "b"]).map((local) => ({ ...local, isAddress: true })),
    ...localsOf("const float*", hasBias ? ["bias"] : []),
    ...localsOf(`${elementTypes[resultDtype].type}*`, storesResult(finish) ? ["c"] : []),
    ...localsOf("int", [...figuresFor(finish), ...(hasBias ? ["biasBatch"] : [])]),
  ];
}
