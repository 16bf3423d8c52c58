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
	nows.forEach((n, i) => olds[i] ? follow(olds[i], n) : old.append(document.importNode(n, true)));
	olds.slice(nows.length).forEach(n => n.remove());
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
