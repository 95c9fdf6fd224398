// What needs attention, and what to do first.
export function draw() {
  return { title: "Today", content: "" };
}
