package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const maintainer = "natsid <natsid@users.noreply.github.com>"

// installed has the paths of the texts in packages. only is the one kind of package that has the text; "" means all.
var installed = []struct{ text, to, only string }{
	{"natsid.yaml", "/etc/natsid/natsid.yaml", ""},
	{"systemd/natsid.service", "/usr/lib/systemd/system/natsid.service", ""},
	{"systemd/natsid@.service", "/usr/lib/systemd/system/natsid@.service", ""},
	{"systemd/credentials.conf", "/usr/share/doc/natsid/examples/credentials.conf", ""},
	{"natsid.1", "/usr/share/man/man1/natsid.1.gz", ""},
	{"package/copyright", "/usr/share/doc/natsid/copyright", "deb"},
	{"package/lintian-overrides", "/usr/share/lintian/overrides/natsid", "deb"},
	{"package/changelog", "/usr/share/doc/natsid/changelog.gz", "deb"},
	{"LICENSE", "/usr/share/licenses/natsid/LICENSE", "rpm"},
}

// packages writes the deb and the rpm of a target.
func (r *release) packages(t target, binary string, texts map[string]string) {
	stage := got(os.MkdirTemp(filepath.Dir(binary), "package-"))
	staged := func(name, text string) (path string) {
		path = filepath.Join(stage, strings.ReplaceAll(name, "/", "-"))
		must(os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	for kind, packager := range map[string]nfpm.Packager{"deb": deb.Default, "rpm": rpm.DefaultRPM} {
		info := r.packageInfo(t, kind)
		info.Contents = files.Contents{{
			Source: binary, Destination: "/usr/bin/natsid", FileInfo: &files.ContentFileInfo{Mode: 0o755},
		}}
		for _, f := range installed {
			text, kept := texts[f.text], files.TypeFile
			if f.only != "" && f.only != kind {
				continue
			}
			if strings.HasSuffix(f.to, ".gz") {
				text = string(gzipped([]byte(text)))
			}
			if strings.HasPrefix(f.to, "/etc/") {
				kept = files.TypeConfigNoReplace
			}
			c := &files.Content{Source: staged(f.to, text), Destination: f.to, Type: kept}
			c.FileInfo = &files.ContentFileInfo{Mode: 0o644}
			info.Contents = append(info.Contents, c)
		}
		info.Scripts = nfpm.Scripts{
			PostInstall: staged("postinst", texts["package/postinst"]),
			PreRemove:   staged("prerm", texts["package/prerm"]),
			PostRemove:  staged("postrm", texts["package/postrm"]),
		}
		var b bytes.Buffer
		must(packager.Package(nfpm.WithDefaults(info), &b))
		r.write(r.stem(t.name())+"."+kind, b.Bytes())
	}
}

// packageInfo describes a package, without its files. The package depends on that of useradd, which postinst calls.
func (r *release) packageInfo(t target, kind string) *nfpm.Info {
	info := &nfpm.Info{
		Name: "natsid", Arch: strings.Replace(t.arch, "v", "", 1), Platform: "linux", Version: r.number(),
		Section: "net", Priority: "optional", Maintainer: maintainer, Vendor: "natsid",
		Homepage: "https://github.com/natsid/natsid", License: "Apache-2.0",
		Description: "unique 64-bit IDs over NATS\n" +
			"Dense numbers per tag, and snowflakes, for any client of NATS.",
		MTime: r.date, DisableGlobbing: true,
	}
	info.Depends = map[string][]string{"deb": {"passwd"}, "rpm": {"shadow-utils"}}[kind]
	info.RPM.BuildHost = "natsid" // in place of the name of this machine
	return info
}

// image writes the image: an index with one image per architecture, as the tar of an OCI layout. Docker before 29 reads
// manifest.json instead, which knows no architectures: there the first image has the plain tag, and each other one a
// tag with its architecture.
func (r *release) image(stage string) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var list []map[string]any
	tag := "natsid:" + r.number()
	for _, t := range r.targets {
		if !t.isPackaged() {
			continue
		}
		img := r.imageOf(t, filepath.Join(stage, t.name(), t.exe()))
		on := v1.Descriptor{Platform: got(img.ConfigFile()).Platform()}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: on})
		tags := []string{tag + "-" + t.arch}
		if len(list) == 0 {
			tags = []string{tag}
		}
		layer := blob(got(got(img.Layers())[0].Digest()))
		list = append(list, map[string]any{
			"RepoTags": tags, "Config": blob(got(img.ConfigName())), "Layers": []string{layer},
		})
	}
	index = mutate.Annotations(index, r.labels()).(v1.ImageIndex)
	dir := filepath.Join(stage, "image")
	names := map[string]string{ // the name for containerd, and the one for all other tools
		"io.containerd.image.name": "docker.io/library/" + tag, "org.opencontainers.image.ref.name": tag,
	}
	must(got(layout.Write(dir, empty.Index)).AppendIndex(index, layout.WithAnnotations(names)))
	must(os.WriteFile(filepath.Join(dir, "manifest.json"), got(json.Marshal(list)), 0o644))
	r.write(r.stem("image.tar"), tarred(below(dir, dir), r.date))
}

// blob returns the path of a blob in an OCI layout.
func blob(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }

// imageUser is the user of the process, who owns the data.
const imageUser = 65532

// imageOf returns the image of a target: that of the Dockerfile, but with Mozilla's certificates in place of Debian's.
func (r *release) imageOf(t target, binary string) v1.Image {
	all := []file{
		{name: "LICENSE", mode: 0o644, data: got(os.ReadFile(filepath.Join(r.source, "LICENSE")))},
		{name: "data/", mode: 0o700, user: imageUser},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: authorities()},
		{name: "usr/local/bin/natsid", mode: 0o755, data: got(os.ReadFile(binary))},
	}
	// Docker 20 lets only root into folders that have no entry in the image.
	for _, dir := range strings.Fields("etc/ etc/ssl/ etc/ssl/certs/ usr/ usr/local/ usr/local/bin/") {
		all = append(all, file{name: dir, mode: 0o755})
	}
	slices.SortFunc(all, func(a, b file) int { return strings.Compare(a.name, b.name) })
	packed := tarred(all, r.date)
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed)), nil }
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img := got(mutate.AppendLayers(base, got(tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer)))))
	config := got(img.ConfigFile()).DeepCopy()
	config.OS, config.Architecture, config.Variant = t.os, t.goarch(), strings.TrimPrefix(t.arch, t.goarch())
	config.Created = v1.Time{Time: r.date}
	config.Config = v1.Config{
		User: "65532:65532", Entrypoint: []string{"natsid"}, Labels: r.labels(),
		Env:          []string{"PATH=/usr/local/bin", "NATSID_DATA=/data", "NATSID_HTTP=:8080"},
		Volumes:      map[string]struct{}{"/data": {}},
		ExposedPorts: map[string]struct{}{"8080": {}},
	}
	return got(mutate.ConfigFile(img, config))
}

// authorities returns the certificates of the authorities that natsid trusts by default for TLS. Those that are trusted
// under a condition are left out: a file of certificates cannot state the condition.
func authorities() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			must(pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return b.Bytes()
}

func (r *release) labels() map[string]string {
	const of = "org.opencontainers.image."
	return map[string]string{
		of + "title": "natsid", of + "description": "Unique 64-bit IDs over NATS", of + "licenses": "Apache-2.0",
		of + "version": r.number(), of + "revision": r.commit, of + "created": r.date.Format(time.RFC3339),
		of + "source": "https://github.com/natsid/natsid",
	}
}
