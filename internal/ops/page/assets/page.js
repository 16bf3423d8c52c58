// Renews the view every two seconds, while somebody looks: what has changed is changed in place, so focus, selection
// and scrolling stay.
"use strict";

const every = 2000, patience = 8000;

// follow makes an element like another one.
function follow(old, now) {
	if (old.nodeType !== now.nodeType || old.nodeName !== now.nodeName) {
		old.replaceWith(document.importNode(now, true));
		return;
	}
	if (old.nodeType !== Node.ELEMENT_NODE) {
		if (old.nodeValue !== now.nodeValue) old.nodeValue = now.nodeValue;
		return;
	}
	for (const a of [...old.attributes]) {
		if (!now.hasAttribute(a.name) && !(old.nodeName === "DETAILS" && a.name === "open")) old.removeAttribute(a.name);
	}
	for (const a of now.attributes) {
		if (old.getAttribute(a.name) !== a.value) old.setAttribute(a.name, a.value);
	}
	const olds = [...old.childNodes], nows = [...now.childNodes];
	const same = (o, n) => o && n && keyOf(o) === keyOf(n);
	while (same(olds[0], nows[0])) follow(olds.shift(), nows.shift());
	let after = null;
	while (same(olds.at(-1), nows.at(-1))) follow(after = olds.pop(), nows.pop());
	for (const n of nows) {
		const at = n.nodeType === Node.ELEMENT_NODE ? olds.findIndex(o => same(o, n)) : same(olds[0], n) ? 0 : -1;
		for (const gone of olds.splice(0, Math.max(at, 0))) gone.remove();
		if (at >= 0) follow(olds.shift(), n);
		else old.insertBefore(document.importNode(n, true), olds[0] || after);
	}
	for (const gone of olds) gone.remove();
}

// keyOf says which of its siblings a node is. Rows and alarms have a name there, so each keeps what people did with it
// when others come and go.
function keyOf(node) {
	return node.dataset?.key || node.nodeName + " " + (node.className || "");
}

function lost(is) {
	document.body.classList.toggle("old", is);
	document.getElementById("lost").hidden = !is;
}

async function renew() {
	if (document.hidden) return;
	try {
		const answer = await fetch(location.href, {cache: "no-store", signal: AbortSignal.timeout(patience)});
		const now = new DOMParser().parseFromString(await answer.text(), "text/html");
		if (!now.getElementById("main")) throw new Error(answer.status);
		for (const id of ["fresh", "main"]) follow(document.getElementById(id), now.getElementById(id));
		lost(false);
	} catch {
		lost(true);
	}
}

async function run() {
	for (;;) {
		await new Promise(done => setTimeout(done, every));
		await renew();
	}
}

document.addEventListener("visibilitychange", renew);
run();
