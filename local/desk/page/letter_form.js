// The message of a dead letter as a form: its fields by the schema of its queue, whatever it holds, and the JSON that they make.
import { draftOf } from "./drafts.js";
import { idOfMessage, isWrong } from "./messages.js";
import { button, choice, hint, html, labelled, nothing } from "./parts.js";
import { T } from "./texts.js";

// A part of JSON as it was written: a browser rounds numbers of more than 53 bits.
class Verbatim {
  constructor(text) {
    this.text = text;
  }
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value) && !(value instanceof Verbatim);
const namesIn = (json) => [...json.matchAll(/"(?:\\.|[^"\\])*"(\s*:)?/g)].filter(([, colon]) => colon).length;

// The object that a body holds, with its numbers as they were written. Undefined, if a form would lose something: a body that is not an object, or
// has a name twice.
export function messageIn(body) {
  let names = -1; // the reader calls the whole a value, too
  const kept = function (name, value, { source = String(value) } = {}) {
    if (!Array.isArray(this)) names += 1;
    return typeof value === "number" ? new Verbatim(source) : value;
  };
  try {
    const message = JSON.parse(body, kept);
    return isObject(message) && names === namesIn(body) ? message : undefined;
  } catch {
    return undefined;
  }
}

function written(value) {
  if (value instanceof Verbatim) return value.text;
  if (Array.isArray(value)) return `[${value.map(written).join(", ")}]`;
  if (isObject(value)) return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${written(one)}`).join(", ")}}`;
  return JSON.stringify(value);
}

// ---------------------------------------------------------------- fields

// How a field shows a value, and what its text means. A field that is empty is left out.
const plain = (value) => (value === null ? "" : typeof value === "string" ? value : written(value));
const named = (value) => (value === "" ? T.letters.default : plain(value));
const nameIn = (text) => (text === T.letters.default ? "" : text);
const KINDS = {
  text: { textOf: plain, valueOf: (text) => text },
  place: { textOf: named, valueOf: nameIn },
  places: {
    textOf: (value) => (Array.isArray(value) ? value.map(named).join(", ") : named(value)),
    valueOf: (text) => text.split(",").map((one) => nameIn(one.trim())),
  },
  number: { textOf: plain, valueOf: (text) => new Verbatim(text.trim()), faultOf: (text) => (/^\s*(-?(0|[1-9]\d*))?\s*$/.test(text) ? "" : T.letters.notWhole) },
  choice: { textOf: plain, valueOf: (text) => text },
  flag: { textOf: plain, valueOf: (text) => text === "true" },
  json: { textOf: written, valueOf: (text) => new Verbatim(text) },
};

function kindOf({ type, enum: values, items, pattern }, value) {
  // A field of one line would lose the others.
  if (type === undefined || /[\r\n]/.test(plain(value ?? ""))) return "json";
  if (type === "array" && (value === undefined || typeof value === "string" || (Array.isArray(value) && value.every((one) => typeof one === "string")))) return items.type === "string" ? "places" : "json";
  if (isObject(value) || Array.isArray(value)) return "json";
  if (values) return "choice";
  return { integer: "number", boolean: "flag", string: pattern && new RegExp(pattern, "u").test("") ? "place" : "text" }[type] ?? "json";
}

// The shop's own attributes keep their types: all but strings are shown as JSON.
const attributeOf = (value) => (typeof value === "string" && value ? { type: "string" } : {});

// A part of a message: a field, or an object or a list of objects with parts of their own.
function partOf(schema, value, path, name, rows, isRequired = true) {
  const { type, properties, items, required = [], additionalProperties: others } = schema;
  const at = (inner) => (path ? `${path}.${inner}` : inner);
  const about = { path, name, isRequired };
  if (type === "object" && (value === undefined || isObject(value))) {
    const known = Object.entries(properties ?? {}).map(([inner, part]) => partOf(part, value?.[inner], at(inner), inner, rows, required.includes(inner)));
    const unknown = Object.entries(value ?? {}).filter(([inner]) => !Object.hasOwn(properties ?? {}, inner));
    const more = unknown.map(([inner, one]) => ({ ...partOf(isObject(others) ? attributeOf(one) : {}, one, at(inner), inner, rows), isUnknown: !isObject(others) }));
    return { ...about, parts: [...known, ...more] };
  }
  if (items?.type === "object" && (value ?? []).every?.(isObject)) {
    const lines = [...(value ?? []), ...Array(rows).fill(undefined)];
    return { ...about, isList: true, parts: lines.map((one, line) => partOf(items, one, `${path}[${line}]`, line, rows, false)) };
  }
  const kind = kindOf(schema, value);
  return { ...about, kind, values: schema.enum, text: value === undefined ? "" : KINDS[kind].textOf(value) };
}

// Commands of all actions as one schema: the action is a field like the others.
function schemaOf(schema) {
  if (schema.properties) return schema;
  const properties = Object.assign({}, ...Object.values(schema).map((each) => each.properties));
  return { type: "object", required: ["action", "orderId"], properties: { ...properties, action: { type: "string", enum: Object.keys(schema) } } };
}

const typedLines = (key) => Math.max(0, ...Object.keys(draftOf(key).values).map((path) => 1 + Number(path.match(/^items\[(\d+)\]/)?.[1] ?? -1)));

// The parts of a message. `lines` is how many lines the reader wants to add to its list, and `added` how many there are.
export function partsOf(schema, message, key, lines = 0) {
  const there = message.items?.length ?? 0;
  const added = Math.max(lines, typedLines(key) - there, there ? 0 : 1);
  return { ...partOf(schemaOf(schema), message, "", "", added), added };
}

// The JSON that the fields of a form make.
export function bodyOf(part, fields) {
  const valueOf = ({ path, kind, parts, isList, isRequired, isUnknown }) => {
    if (!parts) return fields[path].value === "" ? undefined : KINDS[isUnknown ? "json" : kind].valueOf(fields[path].value);
    const all = parts.map((each) => [each.name, valueOf(each)]).filter(([, value]) => value !== undefined);
    if (!all.length && !isRequired) return undefined;
    return isList ? all.map(([, value]) => value) : Object.fromEntries(all);
  };
  return written(valueOf(part));
}

// ---------------------------------------------------------------- what is shown

const labelOf = ({ name, isUnknown }) => (isUnknown ? T.letters.unknown(name) : typeof name === "number" ? T.letters.line(name + 1) : (T.letters.fields[name] ?? name));

function inWords(part) {
  if (!part.parts) return part.text;
  const all = part.parts.map((each) => [each, inWords(each)]).filter(([, text]) => text !== "");
  return part.isList ? all.map(([, text]) => text).join("; ") : all.map(([each, text]) => T.pair(labelOf(each), text)).join(", ");
}

// The fields of a message that are not empty, as pairs of a name and a text.
export const factsOf = ({ parts }) => parts.map((part) => [labelOf(part), inWords(part)]);

// The fields of a form. `fault` is what the service found wrong: it is said at the field with its `path`.
export function fieldsOf({ parts }, key, fault, addLine) {
  const faultId = `fault-${encodeURIComponent(key)}`;
  const draw = (part) => {
    const { path, kind, text, values } = part;
    const isFault = path === fault?.path;
    const note = isFault ? html`<p class="problem" id=${faultId}>${fault.words}</p>` : nothing;
    if (part.parts) {
      const add = part.isList ? button(T.letters.addLine, addLine) : nothing;
      return html`<fieldset><legend>${labelOf(part)}</legend>${note}${part.parts.map(draw)}${add}</fieldset>`;
    }
    const options = values ?? (kind === "flag" ? ["true", "false"] : undefined);
    const isWrongNow = isWrong(key, path);
    const input = html`<input name=${path} type="text" value=${text} .faultOf=${KINDS[kind].faultOf} inputmode=${kind === "number" ? "numeric" : nothing}
      autocomplete="off" spellcheck="false" aria-invalid=${isFault || isWrongNow ? "true" : nothing} aria-describedby=${isWrongNow ? idOfMessage(key) : isFault ? faultId : nothing}>`;
    const chosen = [["", T.letters.notGiven], ...(options ?? []).map((one) => [one, T.letters.flags[one] ?? one])];
    return html`<div>${options ? choice(path, labelOf(part), chosen, { value: options.includes(text) ? text : "" }) : labelled(labelOf(part), input)}${note}</div>`;
  };
  return html`<div class="fields">${parts.map(draw)}${hint(T.letters.emptied)}</div>`;
}
