# The worker, and convoy beside it. Built from the modules alone; at run time it needs nothing but the network to
# Temporal and the clusters.
FROM golang:1.26.8-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY api api
COPY activities activities
COPY deploy/crds deploy/crds
COPY internal internal
COPY starter starter
COPY worker worker
COPY workflows workflows
ARG VERSION=
RUN CGO_ENABLED=0 go build -buildvcs=false -trimpath -ldflags "-s -w" -o /out/worker ./worker \
 && CGO_ENABLED=0 go build -buildvcs=false -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/convoy ./starter

FROM debian:12.12-slim
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/worker /out/convoy /usr/local/bin/
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/worker"]
