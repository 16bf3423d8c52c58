# A worker on your NATS servers:
#   docker run -e NATS_URL=nats://n1:4222,nats://n2:4222 -v natsid:/data natsid
# A complete service with an embedded NATS server, of which nats.conf says listen and users:
#   docker run -e NATSID_LISTEN_CONF=/nats.conf -v ./nats.conf:/nats.conf:ro -p 127.0.0.1:4222:4222 -v natsid:/data natsid
# Each container needs a volume of its own: its content prevents repeated IDs.

FROM golang:1.26 AS build
WORKDIR /src
# A layer for the modules: they are downloaded again only after go.mod or go.sum
# has changed.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# As a release is built: with its version, commit and date, and the same Go, this is its binary.
ARG VERSION= COMMIT= DATE=
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X github.com/natsid/natsid/internal/cli.builtVersion=$VERSION -X github.com/natsid/natsid/internal/cli.builtCommit=$COMMIT -X github.com/natsid/natsid/internal/cli.builtDate=$DATE" -o /natsid .
# A new volume takes owner and mode from the directory in the image.
RUN mkdir -p /owned && mkdir -m 0700 /owned/data

FROM scratch
# For NATS and MySQL over TLS.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /src/LICENSE /
COPY --from=build /natsid /usr/local/bin/natsid
COPY --from=build --chown=65532:65532 /owned/ /
USER 65532:65532
ENV PATH=/usr/local/bin NATSID_DATA=/data NATSID_HTTP=:8080
VOLUME /data
EXPOSE 8080
ENTRYPOINT ["natsid"]
