#!/bin/sh
# Runs one task of gstream as a Job of Kubernetes, and waits for it:
#
#   gstream run job.yaml --workers 64 --work-dir s3://bucket/work --launch examples/scale/kubernetes.sh
#
# The arguments are the path of gstream, which the image has at another one, and those of gstream task. Change the image
# and the resources to yours. The image must have the version of the gstream that runs the job.
set -eu
shift
name=gstream-task-$(od -An -N6 -tx1 /dev/urandom | tr -d ' \n')
args=
for a in "$@"; do
	args="$args${args:+, }\"$a\""
done
trap 'kubectl delete job "$name" --ignore-not-found --cascade=foreground >/dev/null' EXIT
trap 'exit 143' TERM INT
kubectl create -f - >/dev/null <<END
apiVersion: batch/v1
kind: Job
metadata:
  name: $name
  labels: {app: gstream-task}
spec:
  backoffLimit: 0
  activeDeadlineSeconds: 86400
  ttlSecondsAfterFinished: 3600
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: gstream
          image: gstream:latest
          args: [$args, "--spill-dir", "/spill"]
          resources:
            requests: {cpu: "4", memory: 16Gi}
            limits: {memory: 16Gi}
          volumeMounts:
            - {name: spill, mountPath: /spill}
      volumes:
        - name: spill
          emptyDir: {sizeLimit: 100Gi}
END
while :; do
	state=$(kubectl get job "$name" -o 'jsonpath={.status.succeeded},{.status.failed}')
	case $state in
	1,*) break ;;
	*,1) break ;;
	esac
	sleep 2
done
kubectl logs "job/$name" # the last line is the task's result or error
[ "$state" = 1, ]
