/** Post-processors of a tokenizer.json: they put special tokens around the ids of a text. */

import type { JsonField } from "../json-field.js";
import { maxIds } from "./vocabulary.js";

export interface PostProcessor {
  readonly before: readonly number[];
  readonly after: readonly number[];
}

const none: PostProcessor = { before: [], after: [] };

/** Around each text. */
const maxAdded = 1024;

export function readPostProcessor(field: JsonField): PostProcessor {
  const found = field.isAbsent ? none : readStep(field, 0);
  if (found.before.length + found.after.length > maxAdded)
    throw field.wrong(`made of at most ${maxAdded} ids around a text`);
  return found;
}

function readStep(field: JsonField, depth: number): PostProcessor {
  const type = field.get("type").string();
  switch (type) {
    case "ByteLevel":
      // It changes offsets only, which Holdfast does not compute.
      return none;
    case "BertProcessing":
    case "RobertaProcessing":
      return { before: [readPair(field.get("cls"))], after: [readPair(field.get("sep"))] };
    case "TemplateProcessing":
      return readTemplate(field);
    case "Sequence": {
      if (depth > 8) throw field.wrong("a sequence of at most 8 levels");
      const steps = field
        .get("processors")
        .items(16)
        .map((step) => readStep(step, depth + 1));
      return {
        before: steps.toReversed().flatMap(({ before }) => before),
        after: steps.flatMap(({ after }) => after),
      };
    }
    default:
      throw field.unsupported(
        `the post-processor "${type.slice(0, 40)}"`,
        "Use a tokenizer that is made of other post-processors.",
      );
  }
}

/** ["[CLS]", 101] */
function readPair(field: JsonField): number {
  const [, id] = field.items(2);
  return (id ?? field).whole(0, maxIds - 1);
}

function readTemplate(field: JsonField): PostProcessor {
  const known = field.get("special_tokens");
  const parts = field.get("single").items(64);
  const sequenceAt = parts.findIndex((part) => !part.get("Sequence").isAbsent);
  const isOnce = parts.filter((part) => !part.get("Sequence").isAbsent).length === 1;
  if (!isOnce) throw field.get("single").wrong("a template with the text once");
  const idsOf = (part: JsonField): readonly number[] =>
    known
      .get(part.get("SpecialToken").get("id").string())
      .get("ids")
      .items(64)
      .map((id) => id.whole(0, maxIds - 1));
  return {
    before: parts.slice(0, sequenceAt).flatMap(idsOf),
    after: parts.slice(sequenceAt + 1).flatMap(idsOf),
  };
}
