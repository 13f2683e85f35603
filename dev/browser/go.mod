// A test of what people see of a stuck sync in Temporal's Web UI. A module of its own: nothing else needs a browser.
module convoy.dev/convoy/dev/browser

go 1.26.0

require (
	convoy.dev/convoy/dev/run v0.0.0
	github.com/chromedp/chromedp v0.23.1
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/chromedp/cdproto v0.160.1 // indirect
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)

replace convoy.dev/convoy/dev/run => ../run
