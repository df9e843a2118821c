/** The parts of a tokenizer.json, read and connected: from a text to ids, and back. */

import { HoldfastError } from "../../errors/index.js";
import { withDeadline } from "../deadline.js";
import type { JsonField } from "../json-field.js";
import { type AddedToken, AddedTokenSplitter, readAddedTokens } from "./added-tokens.js";
import { type Decoder, readDecoder } from "./decoders.js";
import { totalLength } from "./growth.js";
import type { TokenModel } from "./model.js";
import { readNormalizer } from "./normalizers.js";
import { type PostProcessor, readPostProcessor } from "./post-processors.js";
import { type PreTokenizer, readPreTokenizer } from "./pre-tokenizers.js";
import { readModel } from "./read-model.js";

export class Pipeline {
  /** The token of each id, added tokens included; undefined where there is none. */
  readonly tokens: readonly (string | undefined)[];
  readonly ids: ReadonlyMap<string, number>;
  readonly specialIds: ReadonlySet<number>;
  readonly postProcessor: PostProcessor;
  /** Normalized tokens are decoded in the form in which they are found, as since version 0.23 of the `tokenizers` package. */
  readonly #normalizedTokens: ReadonlyMap<number, string>;
  readonly #file: string;
  readonly #model: TokenModel;
  readonly #splitter: AddedTokenSplitter;
  readonly #preTokenizer: PreTokenizer | undefined;
  readonly #decoder: Decoder | undefined;
  /** True if the file has regular expressions, which may backtrack without end. */
  readonly #isTimed: boolean;

  constructor(root: JsonField) {
    this.#file = root.file;
    const model = readModel(root.get("model"));
    const added = readAddedTokens(root.get("added_tokens"));
    const normalize = readNormalizer(root.get("normalizer"));
    this.#model = model;
    this.#splitter = new AddedTokenSplitter(root.file, added, normalize);
    this.#normalizedTokens = new Map(
      added.flatMap(({ id, content, isNormalized }) =>
        isNormalized && normalize ? [[id, normalize(content)]] : [],
      ),
    );
    this.#preTokenizer = readPreTokenizer(root.get("pre_tokenizer"));
    this.#decoder = readDecoder(root.get("decoder"));
    this.postProcessor = readPostProcessor(root.get("post_processor"));
    const { tokens, ids } = withAdded(model, added, root.get("added_tokens"));
    this.tokens = tokens;
    this.ids = ids;
    this.specialIds = new Set(added.filter(({ isSpecial }) => isSpecial).map(({ id }) => id));
    for (const id of [...this.postProcessor.before, ...this.postProcessor.after])
      if (tokens[id] === undefined)
        throw root.get("post_processor").wrong(`made of known ids; there is no ${id}`);
    const parts = ["normalizer", "pre_tokenizer", "decoder"].map((part) => root.get(part).value);
    this.#isTimed = JSON.stringify(parts).includes('"Regex"');
  }

  /** The ids of a text without special tokens around it. */
  encode(text: string): readonly number[] {
    return this.#timed(text.length, "encoded", () => {
      const ids: number[] = [];
      for (const section of this.#splitter.sections(text)) {
        if (section.id !== undefined) {
          ids.push(section.id);
          continue;
        }
        const words = this.#preTokenizer?.(section.text, section.isStart) ?? [section.text];
        for (const word of words) for (const id of this.#model.encodeWord(word)) ids.push(id);
      }
      return ids;
    });
  }

  decode(ids: readonly number[]): string {
    const tokens = ids.flatMap((id) => this.#normalizedTokens.get(id) ?? this.tokens[id] ?? []);
    const decoder = this.#decoder;
    if (!decoder) return tokens.join(" ");
    return this.#timed(totalLength(tokens), "decoded", () => decoder(tokens).join(""));
  }

  #timed<Result>(length: number, verb: string, run: () => Result): Result {
    const describe = (): string => `A text of ${length} characters, ${verb} with ${this.#file},`;
    try {
      if (!this.#isTimed && length <= maxUntimed) return run();
      return withDeadline(maxMs + length * maxMsPerCharacter, describe, run);
    } catch (cause) {
      // Of regular expressions that are too large, or need too much memory to backtrack.
      if (!(cause instanceof RangeError) && !(cause instanceof SyntaxError)) throw cause;
      throw new HoldfastError(
        "BAD_FILE",
        `${describe()} needs too much memory: ${cause.message.slice(0, 120)}. Use another tokenizer, or shorter texts.`,
        { numbers: { file: this.#file, length }, cause },
      );
    }
  }
}

const maxMs = 900;
const maxMsPerCharacter = 0.02;
/** Without regular expressions, a shorter text can't take long. */
const maxUntimed = 4096;

/** The vocabulary with added tokens. Both must agree on the id of a token. */
function withAdded(
  model: TokenModel,
  added: readonly AddedToken[],
  field: JsonField,
): Pick<Pipeline, "tokens" | "ids"> {
  if (added.length === 0) return model;
  const tokens = [...model.tokens];
  const ids = new Map(model.ids);
  for (const [index, { id, content }] of added.entries()) {
    const [knownId, knownToken] = [ids.get(content), tokens[id]];
    if ((knownId !== undefined && knownId !== id) || (knownToken !== undefined && knownToken !== content)) {
      throw new HoldfastError(
        "BAD_FILE",
        `${field.file}: added_tokens[${index}] gives the id ${id} to ${JSON.stringify(content.slice(0, 40))}, ` +
          `but ${knownId !== undefined ? `that token has the id ${knownId}` : "another token has it"}. Correct the file.`,
        { numbers: { id } },
      );
    }
    while (tokens.length < id) tokens.push(undefined);
    tokens[id] = content;
    ids.set(content, id);
  }
  return { tokens, ids };
}
